// Draws the charts with the page's own colours, and renews the page as often as the daemon ticks.
"use strict";
(() => {
  const TEAMS_LIGHT = ["#2f6fde", "#c8553d", "#3d9970", "#8e5bd0", "#c2528b", "#2a9db5", "#6b7a2c", "#7a5c43", "#4d5b8c"];
  const TEAMS_DARK = ["#6ea3ff", "#ff8f70", "#5fd1ae", "#b796f5", "#f08fc0", "#5cc8dd", "#b3c264", "#c9a384", "#98a6dd"];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const drawn = new Map();

  function series(chart, one, place) {
    const bars = chart.kind === "bars";
    const team = (dark.matches ? TEAMS_DARK : TEAMS_LIGHT)[place % TEAMS_LIGHT.length];
    const tone = one.role === "team" ? team : colour(one.role);
    const values = bars ? one.values : one.values.map((value, i) => [Date.parse(chart.times[i]), value]);
    const made = {
      name: one.name, type: bars ? "bar" : "line", data: values, itemStyle: { color: tone }, color: tone,
      emphasis: { focus: "series" }, barMaxWidth: 18,
    };
    if (!bars) {
      Object.assign(made, {
        symbol: "none", step: one.step ? "end" : false,
        lineStyle: { width: one.role === "due" ? 2 : one.stack ? 0.5 : 2, color: tone,
          type: one.role === "due" ? "dashed" : one.role === "wanted" ? "dotted" : "solid" },
      });
      if (one.stack) Object.assign(made, { stack: "held", areaStyle: { color: tone, opacity: 0.75 } });
      if (one.area) made.areaStyle = { color: tone, opacity: 0.16 };
    }
    return made;
  }

  function options(chart, narrow) {
    const bars = chart.kind === "bars";
    const text = { color: colour("quiet"), fontFamily: "inherit" };
    const axis = { axisLine: { lineStyle: { color: colour("line") } }, axisTick: { show: false }, axisLabel: text };
    return {
      animation: false,
      aria: { enabled: true },
      textStyle: { color: colour("ink"), fontFamily: getComputedStyle(document.body).fontFamily },
      grid: { left: 8, right: 12, top: 44, bottom: 6, containLabel: true },
      legend: { top: 0, left: 0, type: "scroll", textStyle: { color: colour("ink") }, icon: "roundRect", itemHeight: 9, itemWidth: 16,
        pageTextStyle: text, pageIconColor: colour("link"), pageIconInactiveColor: colour("line") },
      tooltip: { trigger: "axis", renderMode: "richText", confine: true, backgroundColor: colour("card"), borderColor: colour("line"),
        textStyle: { color: colour("ink"), fontSize: 12 }, valueFormatter: (value) => `${Math.round(value * 10) / 10} ${chart.unit}`,
        axisPointer: { lineStyle: { color: colour("quiet") } } },
      xAxis: bars
        ? { type: "category", data: chart.labels, ...axis }
        : { type: "time", ...axis, splitNumber: narrow ? 4 : 8,
            axisLabel: { ...text, formatter: { year: "{d} {MMM}", month: "{d} {MMM}", day: "{d} {MMM}", hour: "{HH}:{mm}", minute: "{HH}:{mm}" } } },
      yAxis: { type: "value", name: chart.unit, nameTextStyle: { ...text, align: "left" }, nameGap: 8, splitLine: { lineStyle: { color: colour("line") } }, axisLabel: text },
      useUTC: true,
      series: chart.series.map((one, place) => series(chart, one, place)),
    };
  }

  function draw() {
    for (const [place, chart] of drawn) {
      if (!place.isConnected) { chart.dispose(); drawn.delete(place); }
    }
    if (!window.echarts) return;
    for (const place of document.querySelectorAll("[data-chart]")) {
      let chart = drawn.get(place);
      if (!chart) {
        chart = window.echarts.init(place, null, { renderer: "canvas" });
        drawn.set(place, chart);
        new ResizeObserver(() => chart.resize()).observe(place);
      }
      chart.setOption(options(JSON.parse(place.dataset.chart), place.clientWidth < 560), true);
      place.dataset.drawn = "yes";
    }
  }

  // Not while somebody reads with the keyboard inside, has something open, or the page is not looked at.
  function renew() {
    const main = document.getElementById("main");
    if (document.hidden || !window.htmx || main.contains(document.activeElement)) return;
    const open = [...main.querySelectorAll("details")].map((one) => one.open);
    window.htmx.ajax("GET", location.href, { target: "#main", select: "#main", swap: "outerHTML" }).then(() => {
      document.querySelectorAll("#main details").forEach((one, i) => { if (i < open.length) one.open = open[i]; });
      draw();
    });
  }

  draw();
  dark.addEventListener("change", draw);
  document.addEventListener("fairshare:renew", renew);
  const every = Number(document.getElementById("main").dataset.refresh);
  if (every > 0) setInterval(renew, Math.max(every, 15) * 1000);
})();
