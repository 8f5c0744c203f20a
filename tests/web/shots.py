"""Pictures of every page as a desktop and a phone show them, light and dark: `python -m tests.web.shots FOLDER`.

To be looked at by a person; the tests of the browser hold what a program can see.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from slurm_fairshare.store.memory import MemoryStore
from slurm_fairshare.store.viewers import Sight
from slurm_fairshare.web.app import create_app
from tests.web.sample import CLUSTER, fill
from tests.web.serving import served

CHROMIUM = "/usr/bin/chromium"
VIEWS = {"desktop": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light"), "phone-dark": (390, "dark")}


class NoRoles:
    def sight(self, _name: str) -> Sight:
        return Sight.OWN

    def close(self) -> None:
        pass


def main(folder: Path, wanted: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    store = MemoryStore(CLUSTER)
    lab = fill(store, days=21)
    app = create_app(lab.config, lambda _sight: store, NoRoles(), lambda: lab.now)
    pages = {
        "tree": "/",
        "programme": "/team/lab/vision",
        "team": "/team/lab/language/chat",
        "queue": "/queue",
        "stopped": f"/job/{lab.stopped}",
        "waiting": f"/job/{lab.waiting}",
        "cluster": "/cluster",
        "budget": "/budget",
        "changeset": "/budget/2",
        "missing": "/job/12",
    }
    with served(app) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for view, (width, scheme) in VIEWS.items():
            context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            page.on("console", lambda message: print("console:", message.type, message.text))
            page.on("pageerror", lambda error: print("error:", error))
            for name, path in pages.items():
                if not wanted or name in wanted or f"{name}-{view}" in wanted:
                    page.goto(address + path)
                    page.wait_for_timeout(400)
                    page.screenshot(path=str(folder / f"{name}-{view}.png"), full_page=True)
            context.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
