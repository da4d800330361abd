// The style sheet inside the elements; colours of text come from the variables of the page.
// It is a constructed sheet, so that an element has its colours before it draws.

export const SHEET = new CSSStyleSheet();
SHEET.replaceSync(`
:host {
  display: block;
  --series-1: light-dark(#2166ac, #7db8f5);
  --series-2: light-dark(#b35900, #f0a35e);
  --series-3: light-dark(#1b7837, #7fcf8f);
  --series-4: light-dark(#7b3294, #d3a4e6);
  --series-5: light-dark(#a50f15, #ff938a);
  --series-6: light-dark(#01665e, #6cc7c0);
  --series-7: light-dark(#8c510a, #d8b26e);
  --series-8: light-dark(#525252, #b0b0b0);
  --on-series: light-dark(#ffffff, #14181d);
}
* { box-sizing: border-box; }
h2 { margin: 0.8rem 0 0.2rem; font-size: 1rem; }
button, select { font: inherit; color: var(--ink); background: var(--paper); border: 1px solid var(--line); border-radius: 4px; }
button { cursor: pointer; padding: 0.25rem 0.5rem; }
button:hover { border-color: var(--dim); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 1px; }
a { color: var(--link); }

.attempt-timeline, .quota-tree { overflow-x: auto; }
svg { display: block; }
text { fill: var(--ink); font: 13px system-ui, sans-serif; }
.axis, .middle, .figures { fill: var(--dim); font-size: 12px; }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.outside { fill: var(--bad); font-weight: 600; pointer-events: none; }
.inside { fill: var(--on-series); font-weight: 600; pointer-events: none; }
.kept { fill: var(--series-1); }
.kept.running, .kept.good { fill: var(--good); }
.lost { fill: var(--paper); stroke: var(--bad); }
.hatch { stroke: var(--paper); stroke-width: 2; fill: none; }
.attempt-timeline .hatch { stroke: var(--bad); }
.blank { fill: transparent; }
.line { stroke: var(--dim); stroke-width: 1.5; fill: none; stroke-dasharray: 5 3; }
svg :is(g, a):focus-visible { outline: none; }
svg :is(g, a):focus-visible rect { stroke: var(--ink); stroke-width: 3; }

.quota { fill: none; stroke: var(--dim); }
.used { fill: var(--series-1); }
.borrowed { fill: var(--series-2); }
.pending { fill: none; stroke: var(--dim); stroke-dasharray: 2 3; }
.lent { fill: none; stroke: var(--series-3); stroke-width: 2; stroke-dasharray: 6 3; }
.mark { stroke: var(--ink); stroke-width: 2; }
.quota-tree a .name { fill: var(--link); text-decoration: underline; }

.panes { display: grid; grid-template-columns: minmax(0, 1fr) 18rem; gap: 1rem 1.5rem; }
.drawn { min-width: 0; display: flex; flex-wrap: wrap; gap: 0.7rem; align-items: stretch; align-content: start; }
.region { border: 1px solid var(--line); border-radius: 8px; padding: 0.5rem 0.8rem 0.7rem; min-width: 0; max-width: 100%; }
.region h2 { margin: 0 0 0.1rem; }
.clusters { display: flex; flex-wrap: wrap; gap: 0.4rem 1.6rem; }
figure { margin: 0; min-width: 0; }
figcaption { color: var(--dim); font-size: 13px; }
.notes { margin: 0.3rem 0 0; padding-left: 1.1rem; color: var(--dim); max-width: 22rem; font-size: 14px; }
canvas { display: block; }
.choices, .legend { display: flex; flex-wrap: wrap; gap: 0.4rem 1.2rem; margin-bottom: 0.7rem; }
.choices select { padding: 4px 9px; min-height: 2.25em; border-color: var(--edge); border-radius: 7px; }
.kind { display: inline-flex; align-items: center; gap: 0.4rem; }
.path { margin: 0 0 0.4rem; }
.path button { border: 0; padding: 0; background: none; color: var(--link); text-decoration: underline; text-underline-offset: 2px; }
.list ul { list-style: none; margin: 0; padding: 0; max-height: 30rem; overflow-y: auto; border: 1px solid var(--line); border-radius: 8px; }
.list li + li { border-top: 1px solid var(--line); }
.list ul button { display: block; width: 100%; text-align: start; padding: 0.4rem 0.6rem; overflow-wrap: anywhere; border: 0; border-radius: 0; background: none; }
.list ul button:hover { background: var(--raised); }
.list ul :focus-visible { outline-offset: -3px; }
.about { margin-top: 1rem; overflow-wrap: anywhere; }
.about h2 { margin: 0; }
.about p { margin: 0.2rem 0; }
.about ul { margin: 0.3rem 0; padding-left: 1.1rem; }
@media (max-width: 60rem) {
  .panes { grid-template-columns: minmax(0, 1fr); }
}
`);
