-- slurm-fairshare: the scheduling contract, read when a job is submitted and kept from then on.
--
-- slurmctld runs this file inside itself while it holds locks: no I/O, no waiting, no libraries. It must run
-- in Lua 5.1, 5.3 and 5.4 (Debian 12's Slurm links 5.1, later ones 5.4). Numbers that come from Slurm are
-- floats even where they count something.
--
-- The grammar and its messages are those of slurm_fairshare/core/contract.py. tests/contract_cases.py is run
-- against both; change them together.
--
-- When the plugin itself is at fault. A Lua error that leaves this file means "accept unchanged" to Slurm up to
-- 25.11 and "refuse" from 26.05 on, so none leaves it. At submit such a job is admitted unallocated and its
-- owner is told: one odd job must not stop the cluster, and protection is never given away by accident.
-- A change to a job is refused: nothing stops when it is, and a change let through would be a way around the
-- contract.

-- settings: begin
local SETTINGS = {
  version = "default",
  rungs = {
    { name = "fs-unallocated", seconds = 0 },
    { name = "fs-15m", seconds = 900 },
    { name = "fs-1h", seconds = 3600 },
    { name = "fs-2h", seconds = 7200 },
    { name = "fs-4h", seconds = 14400 },
    { name = "fs-8h", seconds = 28800 },
  },
  cap = 28800,
  default_min_runtime = 0,
  priorities = { low = 0, normal = 20000, high = 40000 },
  debug = { max_seconds = 900, max_gpus = 8 },
  partitions = {},
  exempt_accounts = {},
  other_qos = {},
  strict = false,
  trusted_uids = { 0 },
}
-- settings: end

local DAY, HOUR, MINUTE = 86400, 3600, 60

-- A refusal is thrown as a table, so that pcall can tell it from a fault of this file.
local function refuse(text, code)
  error({ refusal = text, code = code }, 0)
end

-- 22.05 knows eight codes by name, later releases all of them.
local function policy_code()
  return slurm.ESLURM_ACCOUNTING_POLICY or slurm.ERROR
end

local function time_code()
  return slurm.ESLURM_INVALID_TIME_LIMIT or policy_code()
end

local function qos_code()
  return slurm.ESLURM_INVALID_QOS or policy_code()
end

local function requeue_code()
  return slurm.ESLURM_NOT_SUPPORTED or policy_code()
end

local function contains(list, wanted)
  for _, item in ipairs(list) do
    if string.lower(item) == string.lower(wanted) then
      return true
    end
  end
  return false
end

local function has_text(value)
  return value ~= nil and value ~= ""
end

-- Slurm has a "not set" of each width.
local function is_set(number)
  return number ~= nil and number ~= slurm.NO_VAL and number ~= slurm.NO_VAL16 and number ~= slurm.NO_VAL8
end

-- For counts, where 0 also means "not said".
local function count_of(number)
  if is_set(number) and number > 0 and number < slurm.INFINITE then
    return number
  end
  return nil
end

----------------------------------------------------------------------------------------------------------------
-- Durations
----------------------------------------------------------------------------------------------------------------

-- Nine digits at most: every sum stays exact in a float.
local function whole(digits)
  if string.match(digits, "^[0-9]+$") and #digits <= 9 then
    return tonumber(digits)
  end
  return nil
end

local function split(text, separator)
  local parts = {}
  for part in string.gmatch(text .. separator, "([^" .. separator .. "]*)" .. separator) do
    parts[#parts + 1] = part
  end
  return parts
end

-- Slurm counts from hours after a day or with three numbers, else from minutes.
local function clock_sum(days, numbers)
  local first, second, third = numbers[1], numbers[2] or 0, numbers[3] or 0
  if days ~= nil then
    return days * DAY + first * HOUR + second * MINUTE + third
  end
  if numbers[3] ~= nil then
    return first * HOUR + second * MINUTE + third
  end
  return first * MINUTE + second
end

local function read_clock(text)
  local days = nil
  local before, after = string.match(text, "^([^-]*)-(.*)$")
  if before ~= nil then
    days, text = whole(before), after
    if days == nil then
      return nil
    end
  end
  local numbers = split(text, ":")
  if #numbers > 3 then
    return nil
  end
  for place, digits in ipairs(numbers) do
    numbers[place] = whole(digits)
    if numbers[place] == nil then
      return nil
    end
  end
  return clock_sum(days, numbers)
end

-- 1h30m: larger units first, each once at most.
local function read_units(text)
  local total, rest = 0, text
  for _, unit in ipairs({ { "d", DAY }, { "h", HOUR }, { "m", MINUTE }, { "s", 1 } }) do
    local digits, tail = string.match(rest, "^([0-9]+)" .. unit[1] .. "(.*)$")
    if digits ~= nil then
      local amount = whole(digits)
      if amount == nil then
        return nil
      end
      total, rest = total + amount * unit[2], tail
    end
  end
  if rest ~= "" then
    return nil
  end
  return total
end

-- Seconds, or nil for what is no duration.
local function read_duration(text)
  if text == "" then
    return nil
  end
  text = string.lower(text)
  return read_clock(text) or read_units(text)
end

-- The shortest exact spelling: 5400 is "1h30m".
local function spell(seconds)
  local text = ""
  for _, unit in ipairs({ { "d", DAY }, { "h", HOUR }, { "m", MINUTE }, { "s", 1 } }) do
    local amount = math.floor(seconds / unit[2])
    seconds = seconds - amount * unit[2]
    if amount > 0 then
      text = text .. string.format("%d%s", amount, unit[1])
    end
  end
  if text == "" then
    return "0"
  end
  return text
end

-- As sbatch --time takes it, rounded up to the minute Slurm counts in.
local function clock(seconds)
  local minutes = math.ceil(seconds / MINUTE)
  return string.format("%d:%02d:00", math.floor(minutes / 60), minutes % 60)
end

----------------------------------------------------------------------------------------------------------------
-- Words in a comment
----------------------------------------------------------------------------------------------------------------

local TOKEN = "[^ \t\n\v\f\r,;\"'`()%[%]{}<>]+"

local EXAMPLES = {
  min_runtime = "min_runtime=4h",
  resumable = "resumable=yes",
  priority = "priority=high",
  notice = "notice=USR1",
}

-- Letters only, as a near miss is compared; in this order.
local BARE = {
  { "minruntime", "min_runtime" },
  { "resumable", "resumable" },
  { "priority", "priority" },
  { "notice", "notice" },
}

local ALSO_MEANT = {
  minimumruntime = "min_runtime",
  minimalruntime = "min_runtime",
  mintime = "min_runtime",
  resume = "resumable",
  prio = "priority",
}

-- The batch script gets a notice, unless it is meant for what the script starts with srun.
local TO_STEPS = "steps:"
local SIGNALS = { "HUP", "INT", "QUIT", "TERM", "USR1", "USR2" }

-- A user's own words inside a message: printable, and no longer than a line.
local function show(text)
  local shown = string.gsub(text, "[^ -~]", "?")
  if #shown > 40 then
    shown = string.sub(shown, 1, 37) .. "..."
  end
  return shown
end

local function letters(word)
  local bare = string.gsub(string.lower(word), "[^a-z]", "")
  return bare
end

-- One letter left out, added, changed, or swapped with its neighbour.
local function one_slip(a, b)
  if math.abs(#a - #b) > 1 or a == b then
    return false
  end
  local same = 0
  while same < math.min(#a, #b) and string.byte(a, same + 1) == string.byte(b, same + 1) do
    same = same + 1
  end
  local left, right = string.sub(a, same + 1), string.sub(b, same + 1)
  local left_rest, right_rest = string.sub(left, 2), string.sub(right, 2)
  if left_rest == right or left == right_rest or left_rest == right_rest then
    return true
  end
  local swapped = #left > 1 and #right > 1 and string.sub(left, 1, 2) == string.reverse(string.sub(right, 1, 2))
  return swapped and string.sub(left, 3) == string.sub(right, 3)
end

-- The key a word stands for or was likely meant to be; nil for any other word.
local function meant(word)
  local bare = letters(word)
  for _, key in ipairs(BARE) do
    if bare == key[1] then
      return key[2]
    end
  end
  if ALSO_MEANT[bare] ~= nil then
    return ALSO_MEANT[bare]
  end
  if string.find(bare, "minruntime", 1, true) then
    return "min_runtime"
  end
  for _, key in ipairs(BARE) do
    if one_slip(bare, key[1]) then
      return key[2]
    end
  end
  return nil
end

local READERS = {}

function READERS.min_runtime(value)
  local seconds = read_duration(value)
  if seconds == nil then
    return nil, 'min_runtime "' .. show(value) .. '" cannot be read: write min_runtime=4h '
      .. "(or 90s, 15m, 1d, 1h30m, 4:00:00, 1-12; a bare number is minutes; 0 is unallocated)"
  end
  return seconds
end

local ANSWERS = { yes = "yes", ["true"] = "yes", no = "no", ["false"] = "no" }

function READERS.resumable(value)
  local answer = ANSWERS[string.lower(value)]
  if answer == nil then
    return nil, 'resumable "' .. show(value) .. '" is neither yes nor no: write resumable=yes'
  end
  return answer
end

function READERS.priority(value)
  local name = string.lower(value)
  if name ~= "low" and name ~= "normal" and name ~= "high" then
    return nil, 'priority "' .. show(value)
      .. '" is not known: write priority=low, priority=normal or priority=high'
  end
  return name
end

function READERS.notice(value)
  local lower, where = string.lower(value), ""
  if string.sub(lower, 1, #TO_STEPS) == TO_STEPS then
    lower, where = string.sub(lower, #TO_STEPS + 1), TO_STEPS
  end
  local name = string.upper(string.gsub(lower, "^sig", ""))
  if name == "NONE" and where == "" then
    return "none"
  end
  if not contains(SIGNALS, name) then
    return nil, 'notice "' .. show(value) .. '" is not a signal a job can act on: write notice=USR1 '
      .. "(or " .. table.concat(SIGNALS, ", ") .. "; steps:USR1 for what srun started; none for no notice)"
  end
  return where .. name
end

local function say(name, value)
  if name == "min_runtime" then
    return spell(value)
  end
  return value
end

local function suggest(name, value)
  local read = READERS[name](value)
  if read == nil then
    return EXAMPLES[name]
  end
  return name .. "=" .. say(name, read)
end

local function check_near_miss(key, value)
  local name = meant(key)
  if name ~= nil then
    refuse('"' .. show(key) .. "=" .. show(value) .. '" is not understood: write ' .. suggest(name, value))
  end
  local inner, rest = string.match(value, "^([^=]*)=(.*)$")
  if inner == nil then
    return
  end
  if meant(inner) ~= nil then
    refuse('"' .. show(inner) .. '" is glued to "' .. show(key) .. '=": put a blank before it')
  end
  check_near_miss(inner, rest)
end

local function take(said, key, value)
  local name = string.lower(key)
  if READERS[name] == nil then
    check_near_miss(key, value)
    return
  end
  local read, complaint = READERS[name](value)
  if read == nil then
    refuse(complaint)
  end
  if said[name] ~= nil and said[name] ~= read then
    refuse(name .. " is given twice, as " .. say(name, said[name]) .. " and " .. say(name, read)
      .. ": write it once")
  end
  said[name] = read
end

-- "min_runtime:4h" and a lone "min_runtime" are no prose; "priority" and "resumable" may well be.
local function check_bare_word(token)
  if string.find(letters(token), "minruntime", 1, true) then
    refuse('"' .. show(token) .. '" is not understood: write ' .. EXAMPLES.min_runtime)
  end
end

local function check_blank_before_equals(previous)
  local name = meant(previous)
  if name ~= nil then
    refuse('no blank may stand before "=": write ' .. EXAMPLES[name])
  end
end

-- Only what the comment itself says; an empty table is a comment without a contract.
local function read_words(text)
  local said, previous = {}, ""
  for token in string.gmatch(text or "", TOKEN) do
    local key, value = string.match(token, "^([^=]*)=(.*)$")
    if key == nil then
      check_bare_word(token)
    elseif key == "" then
      check_blank_before_equals(previous)
    else
      take(said, key, value)
    end
    previous = token
  end
  return said
end

----------------------------------------------------------------------------------------------------------------
-- Contract, pin and ladder
----------------------------------------------------------------------------------------------------------------

local function contract_of(said)
  local notice = said.notice
  if notice == "none" then
    notice = nil
  end
  return {
    min_runtime = said.min_runtime or SETTINGS.default_min_runtime,
    resumable = said.resumable or "no",
    priority = said.priority or "normal",
    notice = notice,
  }
end

local function pin_of(contract)
  local pin = string.format("fairshare min_runtime=%d resumable=%s priority=%s",
    contract.min_runtime, contract.resumable, contract.priority)
  if contract.notice ~= nil then
    pin = pin .. " notice=" .. contract.notice
  end
  return pin
end

-- nil if there is no pin, false if it is damaged.
local function read_pin(text)
  if text == nil or string.match(text, "^[ \t\n\v\f\r]*([^ \t\n\v\f\r]+)") ~= "fairshare" then
    return nil
  end
  local pin = string.match(text, "^([^;]*)")
  local seconds, resumable, priority, notice =
    string.match(pin, "^fairshare min_runtime=([0-9]+) resumable=([a-z]+) priority=([a-z]+)(.*)$")
  if seconds == nil or ANSWERS[resumable] == nil or SETTINGS.priorities[priority] == nil then
    return false
  end
  local signal = string.match(notice, "^ notice=(.+)$")
  if notice ~= "" and not (signal and string.match(string.gsub(signal, "^" .. TO_STEPS, ""), "^[A-Z0-9]+$")) then
    return false
  end
  return {
    min_runtime = tonumber(seconds),
    resumable = resumable,
    priority = priority,
    notice = signal,
  }
end

local function rung_named(name)
  for place, rung in ipairs(SETTINGS.rungs) do
    if string.lower(rung.name) == string.lower(name) then
      return rung, place
    end
  end
  return nil
end

local function check_cap(seconds)
  local cap = SETTINGS.cap
  if seconds > cap then
    refuse("min_runtime=" .. spell(seconds) .. " is over the cap of " .. spell(cap)
      .. ": write min_runtime=" .. spell(cap) .. " or less", time_code())
  end
end

local function smallest_rung(seconds)
  for place, rung in ipairs(SETTINGS.rungs) do
    if seconds <= rung.seconds then
      return rung, place
    end
  end
  -- The cap lies above the ladder: a fault of the settings, met by the policy for faults.
  error("no rung covers " .. spell(seconds))
end

local function is_debug(rung)
  return SETTINGS.debug ~= nil and rung.seconds > 0 and rung.seconds <= SETTINGS.debug.max_seconds
end

-- The first rung that is no debug rung, for a job the lane is too small for.
local function rung_outside_lane(place)
  for above = place + 1, #SETTINGS.rungs do
    if not is_debug(SETTINGS.rungs[above]) then
      return SETTINGS.rungs[above]
    end
  end
  return SETTINGS.rungs[place]
end

----------------------------------------------------------------------------------------------------------------
-- What a job asks for
----------------------------------------------------------------------------------------------------------------

-- "gres:gpu:h100:2" (22.05), "gres/gpu:2" (later), "gpu=2", "gpu": a number, or nil if it cannot be told.
local function gpus_of_item(item)
  item = string.gsub(item, "%b()", "")
  item = string.gsub(item, "^gres[:/]", "")
  local rest = string.match(item, "^gpu[:=](.*)$")
  if item == "gpu" then
    return 1
  elseif rest == nil then
    return 0
  end
  local last = string.match(rest, "([^:=]*)$")
  if string.match(last, "^[0-9]+$") then
    return tonumber(last)
  elseif string.match(last, "^[0-9]") then
    return nil
  end
  return 1
end

-- All GPUs named in a list of resources; nil if they cannot be told.
local function gpus_in(text)
  local total = 0
  for item in string.gmatch(text or "", "[^,]+") do
    local gpus = gpus_of_item(item)
    if gpus == nil then
      return nil
    end
    total = total + gpus
  end
  return total
end

-- How many nodes the job may be spread over, at most.
local function nodes_at_most(job)
  local most = count_of(job.max_nodes)
  if most ~= nil then
    return most
  end
  return math.max(count_of(job.min_nodes) or 1, count_of(job.num_tasks) or 1)
end

local function tasks_at_most(job, nodes)
  return count_of(job.num_tasks) or nodes * (count_of(job.ntasks_per_node) or 1)
end

-- --ntasks-per-gpu asks for GPUs without naming a number.
local function gpus_from_tasks(job)
  local per_gpu = count_of(job.ntasks_per_gpu) or count_of(job.ntasks_per_tres)
  if per_gpu == nil then
    return 0
  end
  local tasks = count_of(job.num_tasks)
  if tasks == nil then
    return nil
  end
  return math.ceil(tasks / per_gpu)
end

-- The job's GPUs, at most; nil if they cannot be told.
local function gpus_at_most(job)
  local per_job, per_node = gpus_in(job.tres_per_job), gpus_in(job.tres_per_node)
  local per_socket, per_task = gpus_in(job.tres_per_socket), gpus_in(job.tres_per_task)
  if not (per_job and per_node and per_socket and per_task) then
    return nil
  end
  if per_job > 0 then
    return per_job
  end
  local nodes = nodes_at_most(job)
  local sockets = count_of(job.sockets_per_node)
  if per_socket > 0 and sockets == nil then
    return nil
  end
  local by_task = per_task * tasks_at_most(job, nodes)
  local most = math.max(per_node * nodes, by_task, per_socket * (sockets or 0) * nodes)
  if most > 0 then
    return most
  end
  return gpus_from_tasks(job)
end

-- The partitions a job names, or the default one.
local function partitions_of(named, part_list)
  if has_text(named) then
    return split(named, ",")
  end
  for name, part in pairs(part_list) do
    if part.flag_default == 1 then
      return { name }
    end
  end
  return {}
end

-- Whole nodes come with all their GPUs, however few were asked for.
local function takes_whole_nodes(job, partitions, part_list)
  if job.shared == slurm.JOB_SHARED_NONE then
    return true
  end
  for _, name in ipairs(partitions) do
    if part_list[name] ~= nil and part_list[name].max_share == 0 then
      return true
    end
  end
  return false
end

local function seconds_of(minutes)
  if not is_set(minutes) or minutes == slurm.INFINITE or minutes == 0 then
    return nil
  end
  return minutes * MINUTE
end

-- A partition's default, else its maximum, as Slurm takes them; nil for none.
local function partition_limit(part)
  if is_set(part.default_time) and part.default_time ~= 0 then
    return seconds_of(part.default_time)
  end
  return seconds_of(part.max_time)
end

-- Seconds the job will be allowed to run, nil for no limit known. Of several partitions the least counts.
local function time_limit_of(job, partitions, part_list)
  if is_set(job.time_limit) then
    return seconds_of(job.time_limit)
  end
  local least = nil
  for _, name in ipairs(partitions) do
    local limit = part_list[name] ~= nil and partition_limit(part_list[name]) or nil
    if limit ~= nil and (least == nil or limit < least) then
      least = limit
    end
  end
  return least
end

local function under_contract(account, partitions)
  if has_text(account) and contains(SETTINGS.exempt_accounts, account) then
    return false
  end
  if #SETTINGS.partitions == 0 or #partitions == 0 then
    return true
  end
  for _, name in ipairs(partitions) do
    if contains(SETTINGS.partitions, name) then
      return true
    end
  end
  return false
end

----------------------------------------------------------------------------------------------------------------
-- Submit: decide first, on what was read; write afterwards
----------------------------------------------------------------------------------------------------------------

local function check_time_limit(seconds, limit)
  if limit ~= nil and seconds > limit then
    refuse("min_runtime=" .. spell(seconds) .. " is longer than the job's time limit of " .. spell(limit)
      .. ": write --time=" .. clock(seconds) .. " or more, or min_runtime=" .. spell(limit) .. " or less",
      time_code())
  end
end

-- With --time-min Slurm may shorten the limit, down to below the minimum.
local function check_time_min(seconds, time_min)
  local least = seconds_of(time_min)
  if least ~= nil and seconds > least then
    refuse("--time-min=" .. clock(least) .. " is shorter than min_runtime=" .. spell(seconds)
      .. ": write --time-min=" .. clock(seconds) .. " or more", time_code())
  end
end

-- A QOS outside the ladder has no minimum to keep.
local function check_other_qos(name, said)
  for _, one in ipairs(split(name, ",")) do
    if not contains(SETTINGS.other_qos, one) then
      refuse('--qos="' .. show(name) .. '" is not for users to choose: leave it out and write '
        .. '--comment="min_runtime=4h"', qos_code())
    end
  end
  if said.min_runtime ~= nil and said.min_runtime > 0 then
    refuse("min_runtime=" .. spell(said.min_runtime) .. ' does not go with --qos="' .. show(name)
      .. '": leave one of them out', qos_code())
  end
end

local function check_conflict(asked, said, rung)
  if asked.name ~= rung.name and asked ~= smallest_rung(said.min_runtime) then
    refuse("--qos=" .. asked.name .. " does not go with min_runtime=" .. spell(said.min_runtime)
      .. ", whose QOS is " .. rung.name .. ": leave --qos out", qos_code())
  end
end

local function is_interactive(job)
  -- Only the first component of a heterogeneous batch job carries the script.
  return job.script == nil and not (count_of(job.het_job_offset))
end

local function check_requeue(job, contract)
  if contract.resumable ~= "yes" then
    return
  end
  if job.requeue == 0 then
    refuse("resumable=yes does not go with --no-requeue: leave one of them out", requeue_code())
  end
  if is_interactive(job) then
    refuse("resumable=yes is for batch jobs, and an interactive job cannot be requeued: leave it out",
      requeue_code())
  end
end

-- What the requeue flag must become, nil to leave it. An unallocated job is meant to be requeued when Slurm
-- preempts it, also where JobRequeue=0; a user's own word comes first.
local function requeue_flag(job, contract, said, rung)
  if is_interactive(job) then
    return nil
  elseif contract.resumable == "yes" then
    return 1
  elseif rung.seconds == 0 and said.resumable == nil and not is_set(job.requeue) then
    return 1
  end
  return nil
end

local function rung_for(job, seconds, partitions, part_list)
  local rung, place = smallest_rung(seconds)
  if not is_debug(rung) then
    return rung, nil
  end
  local gpus = not takes_whole_nodes(job, partitions, part_list) and gpus_at_most(job) or nil
  if gpus ~= nil and gpus <= SETTINGS.debug.max_gpus then
    return rung, nil
  end
  return rung_outside_lane(place), gpus or "an unknown number of"
end

local function contract_line(contract, rung)
  local words = "min_runtime=" .. spell(contract.min_runtime) .. " resumable=" .. contract.resumable
    .. " priority=" .. contract.priority
  if contract.notice ~= nil then
    words = words .. " notice=" .. contract.notice
  end
  local meaning = "protected for " .. spell(contract.min_runtime) .. ", charged"
  if rung.seconds == 0 then
    meaning = "unallocated, free, may be stopped at any time"
  end
  return "fairshare: contract " .. words .. ": " .. meaning .. " (QOS " .. rung.name .. ")"
end

-- A job that declares nothing stays in its account's default QOS where that is none of ours: such an account has
-- no budget yet, and may not even be allowed the ladder's QOS. Nothing is lost by it in the accounts that have
-- one, whose default is the unallocated rung.
local function leaves_qos(job, said, contract)
  if SETTINGS.strict or said.min_runtime ~= nil or contract.min_runtime > 0 then
    return false
  end
  return not (has_text(job.default_qos) and rung_named(job.default_qos))
end

local function outside_line(job)
  return "fairshare: no contract: this account has no budget, its jobs run in its default QOS"
    .. (has_text(job.default_qos) and " (" .. job.default_qos .. ")" or "")
end

local function lines_for(job, said, contract, rung, lane_gpus)
  local lines = { contract_line(contract, rung) }
  if said.min_runtime == nil and contract.min_runtime == 0 then
    lines[#lines + 1] = 'fairshare: for protection write --comment="min_runtime=4h" (at most '
      .. spell(SETTINGS.cap) .. ")"
  end
  if lane_gpus ~= nil then
    if type(lane_gpus) == "number" then
      lane_gpus = string.format("%d", lane_gpus)
    end
    lines[#lines + 1] = string.format("fairshare: with %s GPUs it is no debug job; those have %d at most",
      lane_gpus, SETTINGS.debug.max_gpus)
  end
  if is_interactive(job) then
    lines[#lines + 1] = "fairshare: an interactive job cannot be requeued: after its minimum it may be ended, "
      .. "and its session is lost"
  end
  return lines
end

local function decide_other_qos(job, said)
  check_other_qos(job.qos, said)
  said.min_runtime = 0
  local contract = contract_of(said)
  check_requeue(job, contract)
  return {
    contract = contract,
    requeue = contract.resumable == "yes" and 1 or nil,
    lines = { "fairshare: QOS " .. job.qos .. " is outside the ladder: no minimum runtime is promised" },
  }
end

-- What the comment and --qos together declare. A minimum the user did not write yields to the time limit.
local function declared(said, asked, limit)
  if said.min_runtime == nil and asked ~= nil then
    said.min_runtime = asked.seconds
  end
  local contract = contract_of(said)
  if said.min_runtime == nil and limit ~= nil then
    contract.min_runtime = math.min(contract.min_runtime, limit)
  end
  check_cap(contract.min_runtime)
  check_time_limit(contract.min_runtime, limit)
  return contract
end

local function decide(job, partitions, part_list)
  local said = read_words(job.comment)
  local asked = has_text(job.qos) and rung_named(job.qos) or nil
  if has_text(job.qos) and asked == nil then
    return decide_other_qos(job, said)
  end
  local contract = declared(said, asked, time_limit_of(job, partitions, part_list))
  check_time_min(contract.min_runtime, job.time_min)
  check_requeue(job, contract)
  local rung, lane_gpus = rung_for(job, contract.min_runtime, partitions, part_list)
  if asked ~= nil then
    check_conflict(asked, said, rung)
  elseif leaves_qos(job, said, contract) then
    return {
      contract = contract,
      requeue = requeue_flag(job, contract, said, rung),
      lines = { outside_line(job) },
    }
  end
  return {
    contract = contract,
    qos = rung.name,
    requeue = requeue_flag(job, contract, said, rung),
    lines = lines_for(job, said, contract, rung, lane_gpus),
  }
end

-- An administrator's own --admin-comment is kept behind the pin.
local function admin_comment_of(job, contract)
  local pin = pin_of(contract)
  if has_text(job.admin_comment) and not read_pin(job.admin_comment) then
    return pin .. "; " .. job.admin_comment
  end
  return pin
end

-- The pool's nodes take debug and unallocated jobs only. Those are offered it beside the partition they would have
-- had; whoever names a partition has chosen. A pool that does not exist (yet) would refuse the job.
local function with_pool(job, rung, partitions, part_list)
  local pool = SETTINGS.debug ~= nil and SETTINGS.debug.pool or nil
  if pool == nil or part_list[pool] == nil or has_text(job.partition) or #partitions == 0 then
    return nil
  end
  if contains(partitions, pool) or not (is_debug(rung) or rung.seconds == 0) then
    return nil
  end
  return table.concat(partitions, ",") .. "," .. pool
end

-- Jobs smaller than a node prefer some nodes (sbatch --prefer), so that the others stay whole for jobs that need
-- them whole. Slurm tries those first, also by preempting unallocated work there; whoever asks for features has chosen.
local function preferred(job, rung, partitions, part_list)
  local near = SETTINGS.near
  if near == nil or rung.seconds == 0 or has_text(job.prefer) or has_text(job.features) then
    return nil
  end
  local gpus = not takes_whole_nodes(job, partitions, part_list) and gpus_at_most(job) or nil
  return gpus ~= nil and gpus <= near.gpus and near.feature or nil
end

local function write(job, decision)
  job.admin_comment = admin_comment_of(job, decision.contract)
  job.site_factor = SETTINGS.priorities[decision.contract.priority]
  if decision.qos ~= nil then
    job.qos = decision.qos
  end
  if decision.requeue ~= nil then
    job.requeue = decision.requeue
  end
  if decision.partition ~= nil then
    job.partition = decision.partition
  end
  if decision.prefer ~= nil then
    job.prefer = decision.prefer
  end
end

local function tell(lines)
  for _, line in ipairs(lines) do
    slurm.log_user("%s", line)
  end
end

-- A refusal is told to the user; anything else is a fault of this file, told to the log.
local function refused(problem)
  if type(problem) == "table" and problem.refusal ~= nil then
    tell({ "fairshare: " .. problem.refusal })
    return problem.code or policy_code()
  end
  slurm.log_error("slurm-fairshare (%s): fault in job_submit.lua: %s", SETTINGS.version, tostring(problem))
  return nil
end

-- The policy for faults at submit, see the top.
local function admit_unallocated(job)
  pcall(write, job, { contract = contract_of({ min_runtime = 0 }), qos = SETTINGS.rungs[1].name })
  pcall(tell, {
    "fairshare: the contract could not be read because of a fault in the plugin: this job runs unallocated "
      .. "(free, may be stopped at any time). Tell your administrators",
  })
  return slurm.SUCCESS
end

local function submit(job, part_list)
  local partitions = partitions_of(job.partition, part_list)
  local account = has_text(job.account) and job.account or job.default_account
  if not under_contract(account, partitions) then
    return
  end
  local decision = decide(job, partitions, part_list)
  local rung = decision.qos ~= nil and rung_named(decision.qos) or nil
  if rung ~= nil then
    decision.partition = with_pool(job, rung, partitions, part_list)
    decision.prefer = preferred(job, rung, partitions, part_list)
  end
  write(job, decision)
  tell(decision.lines)
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  local fine, problem = pcall(submit, job_desc, part_list)
  if fine then
    return slurm.SUCCESS
  end
  local told, code = pcall(refused, problem)
  return told and code or admit_unallocated(job_desc)
end

----------------------------------------------------------------------------------------------------------------
-- Modify. Slurm refuses an AdminComment that anybody but an administrator changes, also where this plugin set
-- it (submit has no such second look). A contract that could change without its pin would be no contract, so an
-- owner's contract is fixed at submit.
----------------------------------------------------------------------------------------------------------------

local RESUBMIT = ": cancel it and submit it again, or ask an administrator"

local function is_trusted(uid)
  for _, trusted in ipairs(SETTINGS.trusted_uids) do
    if uid == trusted then
      return true
    end
  end
  return false
end

local function is_pending(job_rec)
  -- The base state is the low byte; flags such as REQUEUED stand above it. PENDING is 0.
  return job_rec.job_state % 256 == 0
end

-- Words about the contract may be repeated, not changed.
local function check_comment(text, pin)
  local said = read_words(text)
  if next(said) == nil then
    return
  end
  if not pin then
    refuse("this job has no contract that could be changed" .. RESUBMIT)
  end
  for name, value in pairs(said) do
    local held = pin[name]
    if name == "notice" and held == nil then
      held = "none"
    end
    if held ~= value then
      refuse("a contract is fixed when the job is submitted (" .. name .. "=" .. say(name, held) .. ")"
        .. RESUBMIT)
    end
  end
end

local function check_qos(wanted, held)
  if wanted ~= nil and string.lower(wanted) ~= string.lower(held or "") then
    refuse("the QOS follows from the contract, which is fixed when the job is submitted" .. RESUBMIT,
      qos_code())
  end
end

local function check_limits(job, seconds)
  local limit = is_set(job.time_limit) and seconds_of(job.time_limit) or nil
  if limit ~= nil and limit < seconds then
    refuse("a time limit of " .. spell(limit) .. " is shorter than the job's min_runtime=" .. spell(seconds)
      .. ": leave at least that", time_code())
  end
  check_time_min(seconds, job.time_min)
end

local function check_requeue_change(job, pin)
  if job.requeue == 0 and pin.resumable == "yes" then
    refuse("resumable=yes is part of this job's contract: it must stay requeueable" .. RESUBMIT, requeue_code())
  end
end

-- A job that was let in without a contract must not move to where one is needed.
local function check_move(job, job_rec, part_list)
  local account = has_text(job.account) and job.account or job_rec.account
  local partitions = partitions_of(has_text(job.partition) and job.partition or job_rec.partition, part_list)
  if under_contract(account, partitions) then
    refuse("jobs in this account and partition need a contract, and this job has none" .. RESUBMIT)
  end
end

local function modify_by_owner(job, job_rec, part_list)
  local pin = read_pin(job_rec.admin_comment)
  if not under_contract(job_rec.account, partitions_of(job_rec.partition, part_list)) then
    if not pin and (has_text(job.account) or has_text(job.partition)) then
      check_move(job, job_rec, part_list)
    end
    return
  end
  if job.comment ~= nil then
    check_comment(job.comment, pin)
  end
  check_qos(job.qos, job_rec.qos)
  if pin then
    check_limits(job, pin.min_runtime)
    check_requeue_change(job, pin)
  end
end

-- The job as it would be submitted now, for a contract that an administrator writes anew.
local function merged(job, job_rec)
  return {
    comment = job.comment,
    time_limit = is_set(job.time_limit) and job.time_limit or job_rec.time_limit,
    time_min = is_set(job.time_min) and job.time_min or job_rec.time_min,
    -- The whole request in one line; the single options are not all in a job's record.
    tres_per_job = string.gsub(job_rec.tres_fmt_req_str or "", "gres/gpu:[^,]*", ""),
    requeue = job.requeue,
    script = "",
  }
end

-- An administrator's Comment on a pending job is a new contract, AdminComment and all.
local function modify_by_administrator(job, job_rec, part_list)
  if job.comment == nil or job.admin_comment ~= nil or job.qos ~= nil or not is_pending(job_rec) then
    return
  end
  if next(read_words(job.comment)) == nil then
    return
  end
  -- Nothing is told: scontrol would print it as an error.
  write(job, decide(merged(job, job_rec), partitions_of(job_rec.partition, part_list), part_list))
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  local trusted = is_trusted(modify_uid)
  -- The daemon's own updates come by the thousand: nothing is looked at that need not be.
  if trusted and job_desc.comment == nil then
    return slurm.SUCCESS
  end
  local change = trusted and modify_by_administrator or modify_by_owner
  local fine, problem = pcall(change, job_desc, job_rec, part_list)
  if fine then
    return slurm.SUCCESS
  end
  local told, code = pcall(refused, problem)
  if told and code ~= nil then
    return code
  end
  pcall(tell, {
    "fairshare: this change could not be checked because of a fault in the plugin. Tell your administrators",
  })
  return slurm.ERROR
end

return slurm.SUCCESS
