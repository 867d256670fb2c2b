// What can be judged of a page's accessibility from the document itself: a list of faults, empty when all is well.
(() => {
  const faults = [];
  const short = (node) => node.outerHTML.slice(0, 90);
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  if (document.documentElement.lang !== "en") faults.push("no language");
  if (!document.title.trim()) faults.push("no title");
  if (all("h1").length !== 1) faults.push("not one h1");
  for (const landmark of ["header", "main", "footer"]) if (all(landmark).length !== 1) faults.push(`not one ${landmark}`);
  const shown = (node) => node.checkVisibility();
  let level = 0;
  for (const heading of all("h1,h2,h3,h4").filter(shown)) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) faults.push(`a level is left out before ${short(heading)}`);
    level = next;
  }
  for (const table of all("table")) {
    if (!one("caption", table)?.textContent.trim()) faults.push(`no caption: ${short(table)}`);
    for (const head of all("th", table)) if (!head.scope) faults.push(`no scope: ${short(head)}`);
  }
  for (const drawn of all("svg")) {
    const named = drawn.getAttribute("role") === "img" && drawn.getAttribute("aria-label");
    if (!named && drawn.getAttribute("aria-hidden") !== "true") faults.push(`unnamed drawing: ${short(drawn)}`);
  }
  for (const box of all("[tabindex]")) if (!box.getAttribute("aria-label")) faults.push(`unnamed stop: ${short(box)}`);
  for (const link of all("a")) if (!link.textContent.trim()) faults.push(`empty link: ${short(link)}`);
  for (const field of all("progress")) if (!field.labels.length) faults.push(`unnamed: ${short(field)}`);
  const ids = all("[id]").map((node) => node.id);
  for (const id of new Set(ids)) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`id twice: ${id}`);
  for (const node of all("[aria-labelledby]")) if (!document.getElementById(node.getAttribute("aria-labelledby"))) faults.push(`label is not there: ${short(node)}`);
  if (!one("[role=alert]") || !one("[aria-live=polite]")) faults.push("changes are not told");
  // A tone is never without a mark or a word.
  for (const node of all(".verdict, #top .state, .card h3 .word")) if (!/[A-Z]{4}/.test(node.textContent)) faults.push(`a tone without a word: ${short(node)}`);
  for (const node of all(".ports b.bad, .ports b.soft")) if (!/[✖▲?]/.test(node.textContent)) faults.push(`a tone without a mark: ${short(node)}`);

  // WCAG 2.2, 1.4.3: text against what is behind it, with what is seen through.
  const parse = (text) => {
    const n = text.match(/-?[\d.]+(e-?\d+)?/g).map(Number);
    const scale = text.startsWith("color(srgb") ? 255 : 1;
    return [n[0] * scale, n[1] * scale, n[2] * scale, n[3] ?? 1];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const canvas = parse(getComputedStyle(document.body).backgroundColor);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const tried = new Set();
  let judged = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || tried.has(node) || !shown(node) || node.closest("script,style,noscript,.unseen")) continue;
    tried.add(node);
    const chain = [];
    for (let up = node; up; up = up.parentElement) chain.unshift(up);
    let behind = canvas, opacity = 1;
    for (const each of chain) {
      const style = getComputedStyle(each);
      behind = over(parse(style.backgroundColor), behind);
      opacity *= Number(style.opacity);
    }
    const style = getComputedStyle(node), ink = parse(style.color);
    ink[3] *= opacity;
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const has = ratio(over(ink, behind), behind);
    judged += 1;
    if (has < (large ? 3 : 4.5)) faults.push(`contrast ${has.toFixed(2)}: ${short(node)}`);
  }
  if (judged < 15) faults.push(`only ${judged} texts were judged`);
  return faults;
})()
