// The maps of the page of one cluster.
(() => {
  const data = JSON.parse($("map-data").textContent);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const mix = (from, to, share) => {
    const channel = (text, at) => parseInt(text.slice(at, at + 2), 16);
    const part = (at) => Math.round(channel(from, at) + (channel(to, at) - channel(from, at)) * share);
    return `rgb(${part(1)}, ${part(3)}, ${part(5)})`;
  };

  // A single address in use must be visible, even in a large cell.
  const share = (taken) => (taken > 0 ? 0.2 + 0.8 * taken : 0);

  const findingsOf = new Map();
  for (const row of $("findings-table")?.tBodies[0].rows || []) {
    const [severity, , name, said] = row.cells;
    const subject = `${row.dataset.kind || "address"}/${name.textContent}`;
    if (!findingsOf.has(subject)) findingsOf.set(subject, []);
    const message = (said.querySelector("summary") || said.lastChild).textContent;
    findingsOf.get(subject).push({ message, severity: severity.textContent });
  }

  // Addresses as numbers: IPv6 needs BigInt.
  const parse = (text) => {
    if (!text.includes(":")) return [32, text.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0n)];
    const [head, tail] = text.split("::");
    const groups = (part) => (part ? part.split(":") : []);
    const first = groups(head);
    const last = tail === undefined ? [] : groups(tail);
    const middle = tail === undefined ? [] : Array(8 - first.length - last.length).fill("0");
    return [128, [...first, ...middle, ...last].reduce((sum, g) => sum * 65536n + BigInt(`0x${g}`), 0n)];
  };
  const format = (bits, value) => {
    const parts = (count, size) => Array.from({ length: count }, (_, i) =>
      (value >> BigInt(size * (count - 1 - i))) & ((1n << BigInt(size)) - 1n));
    if (bits === 32) return parts(4, 8).join(".");
    const groups = parts(8, 16).map((group) => group.toString(16));
    const zeros = [...groups.join(":").matchAll(/(^|:)0(:0)+(?=:|$)/g)].sort((a, b) => b[0].length - a[0].length);
    if (!zeros.length) return groups.join(":");
    const text = groups.join(":");
    const at = zeros[0].index;
    return `${text.slice(0, at)}::${text.slice(at + zeros[0][0].length).replace(/^:/, "")}`;
  };

  const states = { f: "free", u: "used", c: "cooling", w: "reserved" };
  const stateWords = { f: "free", u: "allocated", c: "cooling", w: "reserved for Windows" };
  // `u40f24` → 40 times u, 24 times f.
  const expand = (text) => [...text.matchAll(/([a-z])(\d+)/g)].flatMap(([, s, n]) => Array(Number(n)).fill(s));

  // Shows the block of a row in a table of blocks.
  const showBlock = (panel, row) => {
    const [cidr, blockOwner] = [row.cells[0].textContent, row.cells[1].textContent];
    panel.replaceChildren();
    const title = document.createElement("h4");
    title.textContent = `${cidr}, ${blockOwner || "no owner"}`;
    panel.append(title);
    for (const { message, severity } of findingsOf.get(`block/${cidr}`) || []) {
      const line = document.createElement("p");
      line.className = severity;
      line.textContent = message;
      panel.append(line);
    }
    if (!row.dataset.states) return;
    const [bits, base] = parse(cidr.split("/")[0]);
    const owners = new Map((data.owners[cidr] || []).map(([ordinal, owner]) => [ordinal, owner]));
    const grid = document.createElement("div");
    grid.className = "addresses";
    const story = document.createElement("p");
    story.setAttribute("aria-live", "polite");
    story.textContent = "Choose an address.";
    expand(row.dataset.states).forEach((state, ordinal) => {
      const address = format(bits, base + BigInt(ordinal));
      const found = findingsOf.get(`address/${address}`) || [];
      const owner = owners.get(ordinal);
      const text = `${address}: ${stateWords[state]}${owner ? `, recorded for ${owner}` : ""}`
        + found.map(({ message }) => `. ${message}`).join("");
      const button = document.createElement("button");
      // The worst finding of an address comes first.
      button.className = `${states[state]}${found.length ? ` marked ${found[0].severity}` : ""}`;
      button.title = text;
      button.setAttribute("aria-label", text);
      button.addEventListener("click", () => {
        grid.querySelector("[aria-pressed]")?.removeAttribute("aria-pressed");
        button.setAttribute("aria-pressed", "true");
        story.replaceChildren(text, document.createElement("br"));
        const command = document.createElement("code");
        command.textContent = `calipam show --ip ${address}`;
        story.append("Everything about it: ", command);
      });
      grid.append(button);
    });
    panel.append(grid, story);
  };

  const draw = (pool, figure) => {
    const canvas = figure.querySelector("canvas");
    const panel = figure.querySelector(".block");
    const status = figure.querySelector(".cell");
    const [bits, base] = parse(pool.cidr.split("/")[0]);
    const columns = Math.min(pool.size, pool.size > 4096 ? 128 : 64);
    const lines = Math.ceil(pool.size / columns);
    const side = Math.max(7, Math.min(20, Math.floor(1024 / columns)));
    const cells = new Map(pool.cells.map((cell) => [cell[0], cell]));
    let at = pool.cells.length ? pool.cells[0][0] : 0;

    const addressOf = (index) => format(bits, base + (BigInt(index) << BigInt(bits - pool.cellSize)));
    // Every `labelled` lines, the first address of the line is written before it.
    const labelled = Math.max(1, Math.ceil(13 / side));
    const font = "11px ui-monospace, monospace";
    const context = canvas.getContext("2d");
    context.font = font;
    const labels = Array.from({ length: lines }, (_, line) =>
      (lines > 1 && line % labelled === 0 ? addressOf(line * columns) : ""));
    const left = Math.ceil(Math.max(0, ...labels.map((label) => context.measureText(label).width)));
    const gutter = left ? left + 8 : 0;
    // Labels are higher than small cells, so the first one needs room above it.
    const head = Math.max(0, Math.ceil((12 - side) / 2));
    const [width, height] = [gutter + columns * side + 1, head + lines * side + 1];
    const edge = (index) => [gutter + (index % columns) * side, head + Math.floor(index / columns) * side];

    const fillOf = (cell) => {
      if (!cell) return color("unclaimed");
      const [, blocks, used = 0, , , cooling = 0, reserved = 0, unknown = 0] = cell;
      if (unknown) return color("unknown");
      const taken = (used + cooling + reserved) / pool.cellTotal;
      return blocks ? mix(color("free"), color("used"), share(taken)) : color("unclaimed");
    };
    const paint = () => {
      // Uses the resolution of the screen.
      const scale = Math.min(3, devicePixelRatio || 1);
      [canvas.width, canvas.height] = [width * scale, height * scale];
      canvas.style.width = `${width}px`;
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.fillStyle = color("dim");
      context.font = font;
      context.textBaseline = "middle";
      labels.forEach((label, line) => context.fillText(label, 0, head + line * side + side / 2));
      const free = color("unclaimed");
      for (let index = 0; index < pool.size; index += 1) {
        const cell = cells.get(index);
        const [x, y] = edge(index);
        context.fillStyle = cell ? fillOf(cell) : free;
        context.fillRect(x + 1, y + 1, side - 1, side - 1);
        if (cell && cell[4]) {
          context.fillStyle = color(cell[4]);
          const mark = Math.max(3, Math.round(side / 2.5));
          context.beginPath();
          context.moveTo(x + side - mark, y + 1);
          context.lineTo(x + side, y + 1);
          context.lineTo(x + side, y + 1 + mark);
          context.fill();
        }
      }
      const [x, y] = edge(at);
      context.strokeStyle = color("ink");
      context.lineWidth = 2;
      context.strokeRect(x, y, side + 1, side + 1);
    };

    const describe = () => {
      const cell = cells.get(at);
      const parts = [`${addressOf(at)}/${pool.cellSize}`];
      if (!cell || !cell[1]) parts.push("no block");
      else {
        const [, blocks, used = 0, , , cooling = 0, reserved = 0, unknown = 0] = cell;
        if (blocks > 1) parts.push(`${number(blocks)} blocks`);
        parts.push(`${number(used)} of ${number(pool.cellTotal)} addresses in use`);
        if (cooling) parts.push(`${number(cooling)} cooling`);
        if (reserved) parts.push(`${number(reserved)} reserved`);
        if (unknown) parts.push(`${number(unknown)} unknown`);
      }
      if (cell && cell[3]) parts.push(`${number(cell[3])} findings (worst: ${cell[4]})`);
      status.textContent = parts.join(", ");
    };
    const open = () => {
      panel.replaceChildren();
      for (const row of pool.blocks[at] || []) {
        const part = document.createElement("div");
        panel.append(part);
        showBlock(part, row);
      }
    };
    const go = (index, andOpen) => {
      at = Math.max(0, Math.min(pool.size - 1, index));
      paint();
      describe();
      if (andOpen) open();
    };
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const x = Math.floor((((event.clientX - box.left) * width) / box.width - gutter) / side);
      const y = Math.floor((((event.clientY - box.top) * height) / box.height - head) / side);
      if (x < 0 || x >= columns || y < 0) return;
      go(y * columns + x, true);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
      if (event.key in steps) go(at + steps[event.key], false);
      else if (event.key === "Enter" || event.key === " ") open();
      else return;
      event.preventDefault();
    });
    for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", paint);
    go(at, false);
  };

  data.pools.forEach((pool, index) => {
    const figure = $(`map-${index}`);
    if (!figure) return;
    // Maps each cell to its rows in the table below the map.
    pool.blocks = {};
    const begin = parse(pool.cidr.split("/")[0])[1];
    for (const row of figure.querySelectorAll(".blocks tbody tr")) {
      const [address, size] = row.cells[0].textContent.split("/");
      const [bits, base] = parse(address);
      const first = Number((base - begin) >> BigInt(bits - pool.cellSize));
      const cells = 2 ** Math.max(0, pool.cellSize - size);
      for (let cell = first; cell < first + cells; cell += 1) (pool.blocks[cell] ||= []).push(row);
    }
    draw(pool, figure);
  });
})();
