"""The style of the report's page: light and dark, wide and narrow, on a screen and on paper."""

STYLE = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1b1f24; --soft: #57606a; --line: #d5dae0; --head: #eef1f4;
  --good: #116329; --good-back: #dcf5e3; --bad: #a40e26; --bad-back: #ffe3e6; --warn: #7a4b00;
  --warn-back: #fff1cf; --link: #0a58ca; --dot: #0a58ca; }
@media (prefers-color-scheme: dark) { :root {
  --page: #0f1318; --card: #181d24; --text: #e4e8ec; --soft: #9aa5b1; --line: #313a45; --head: #202731;
  --good: #7ee2a0; --good-back: #10331d; --bad: #ff9aa6; --bad-back: #4a1219; --warn: #ffd479;
  --warn-back: #40300a; --link: #82b4ff; --dot: #82b4ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
.banner { background: var(--warn-back); color: var(--warn); font-weight: 700; text-align: center;
  padding: .5rem 1rem; position: sticky; top: 0; z-index: 1; border-bottom: 1px solid var(--line); }
main, header, nav { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1.5rem 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.25rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .25rem; }
h2, h3 { scroll-margin-top: 3.5rem; }
p { margin: .4rem 0; max-width: 60rem; }
small { font-size: .85em; }
.soft, caption { color: var(--soft); }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; margin: .75rem 0; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 3px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .75rem;
  margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .75rem 1rem; }
.card b { display: block; font-size: 1.2rem; line-height: 1.3; overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.mark { display: inline-block; padding: 0 .5em; border-radius: 1em; font-weight: 600; white-space: nowrap; }
.mark.good { background: var(--good-back); } .mark.bad { background: var(--bad-back); }
.mark.warn { background: var(--warn-back); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  margin: .5rem 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: left; padding: .5rem .75rem; font-size: .92rem; }
th, td { padding: .35rem .75rem; text-align: left; vertical-align: top; border-top: 1px solid var(--line); }
thead th { background: var(--head); vertical-align: bottom; }
.row { white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n { white-space: nowrap; }
tbody th { font-weight: 500; white-space: nowrap; }
tr.wrong > * { background: var(--bad-back); }
.facts th { width: 12rem; } .facts td { overflow-wrap: anywhere; white-space: normal; }
code, pre { font: .86rem/1.45 ui-monospace, "SFMono-Regular", Consolas, "DejaVu Sans Mono", monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--head); padding: .5rem .75rem;
  border-radius: .4rem; margin: .4rem 0; }
details { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .5rem 1rem;
  margin: .5rem 0; }
details .scroll { border: 0; margin: 0 -1rem; border-radius: 0; }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
svg { width: 100%; max-width: 40rem; height: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; }
svg text { fill: var(--soft); font-size: 12px; } svg .axis { stroke: var(--line); }
svg .equal { stroke: var(--soft); stroke-dasharray: 5 4; }
svg circle { fill: var(--dot); fill-opacity: .65; }
footer { color: var(--soft); border-top: 1px solid var(--line); margin: 2.5rem 0 1.5rem;
  padding-top: .75rem; }
@media (max-width: 40rem) { body { font-size: 15px; } th, td { padding: .35rem .5rem; }
  .facts th { width: 7.5rem; overflow-wrap: anywhere; white-space: normal; }
  thead th { white-space: nowrap; } }
@media print { .banner { position: static; } details { break-inside: avoid; } }
"""
