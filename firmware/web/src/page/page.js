"use strict";
// The page shows the model that the box sends and has no data of its own. All text is set as
// textContent, so text that a machine sent cannot become markup.
(() => {
  const STALE_MS = 3500;
  const POLL_MS = 1000;
  const TONES = [
    ["all", "nodes"], ["active", "active"], ["working", "working"],
    ["available", "available"], ["failed", "failed"], ["idle", "idle"],
    ["maintenance", "in maintenance"],
  ];
  const by = (id) => document.getElementById(id);
  const rows = new Map();
  let model = null;
  let tone = "all";
  let open = null;
  let receivedAt = null;
  const startedAt = Date.now();
  let streamAt = -Infinity;

  const make = (tag, name) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    return element;
  };
  const setText = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  const mark = (element, key, value) => {
    if (element.dataset[key] !== value) element.dataset[key] = value;
  };
  const clock = (ms) => new Date(ms).toLocaleTimeString();
  const ago = (ms) => {
    const seconds = Math.max(0, Math.round((model.at_ms - ms) / 1000));
    if (seconds < 90) return seconds + " s ago";
    if (seconds < 5400) return Math.round(seconds / 60) + " min ago";
    if (seconds < 129600) return Math.round(seconds / 3600) + " h ago";
    return Math.round(seconds / 86400) + " d ago";
  };
  const bytes = (count) => {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let unit = 0;
    while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
    return (unit ? count.toFixed(1) : count) + " " + units[unit];
  };
  // As in `trivet node list`: present action, attempt, begin.
  const work = (node) => node.doing
    + (node.tries ? ", try " + node.tries[0] + " of " + node.tries[1] : "")
    + (node.since_ms ? ", began " + ago(node.since_ms) : "");
  const powerOf = (node) => node.power ? node.power.replace("power ", "") : "unknown";

  const row = (uuid) => {
    const item = make("li", "node");
    const part = (tag, name, into) => (into || item).appendChild(make(tag, name));
    const name = part("button", "name");
    name.type = "button";
    name.addEventListener("click", () => show(uuid));
    const chips = part("div", "chips");
    const chip = part("span", "chip", chips);
    const care = part("span", "chip", chips);
    care.dataset.tone = "maintenance";
    care.textContent = "maintenance";
    const weak = part("span", "chip", chips);
    weak.dataset.tone = "maintenance";
    weak.textContent = "weakly authenticated";
    const power = part("span", "power");
    const meter = part("div", "meter");
    const progress = part("progress", "", meter);
    progress.max = 100;
    const percent = part("span", "percent", meter);
    const now = part("div", "now");
    const parts = { item, name, chip, care, weak, power, progress, percent };
    for (const line of ["doing", "error", "advice", "last"]) parts[line] = part("p", line, now);
    return parts;
  };

  const fill = (parts, node) => {
    mark(parts.item, "tone", node.tone);
    setText(parts.name, node.name);
    mark(parts.chip, "tone", node.tone);
    setText(parts.chip, node.state);
    parts.care.hidden = !node.maintenance;
    parts.care.title = node.maintenance_reason || "";
    parts.weak.hidden = !node.weakly_authenticated;
    parts.weak.title = "This box did not lease the address of its agent, " + node.agent_address;
    mark(parts.power, "power", powerOf(node));
    setText(parts.power, powerOf(node));
    if (parts.progress.value !== node.progress) parts.progress.value = node.progress;
    parts.progress.setAttribute("aria-label", "Progress of " + node.name);
    setText(parts.percent, node.progress + "%");
    setText(parts.doing, work(node));
    setText(parts.error, node.error || "");
    parts.error.hidden = !node.error;
    setText(parts.advice, node.advice || "");
    parts.advice.hidden = !node.advice;
    // The error already contains the note of the failure.
    const last = node.notes.find((note) => !node.error || !note.text.includes(node.error));
    setText(parts.last, last ? last.text + ", " + ago(last.at_ms) : "");
    parts.last.hidden = !last;
  };

  const wanted = (node) => {
    const text = by("search").value.trim().toLowerCase();
    if (tone === "maintenance" && !node.maintenance) return false;
    if (tone !== "all" && tone !== "maintenance" && node.tone !== tone) return false;
    return !text || [node.name, node.state, node.uuid, ...node.macs]
      .some((word) => word.toLowerCase().includes(text));
  };

  const drawNodes = () => {
    const list = by("nodes");
    const present = new Set();
    let before = null;
    for (const node of model.nodes) {
      present.add(node.uuid);
      if (!rows.has(node.uuid)) rows.set(node.uuid, row(node.uuid));
      const parts = rows.get(node.uuid);
      fill(parts, node);
      parts.item.hidden = !wanted(node);
      const place = before ? before.nextSibling : list.firstChild;
      if (place !== parts.item) list.insertBefore(parts.item, place);
      before = parts.item;
    }
    for (const [uuid, parts] of rows) {
      if (!present.has(uuid)) { parts.item.remove(); rows.delete(uuid); }
    }
    by("none").hidden = model.nodes.length > 0;
  };

  const drawStrangers = () => {
    by("unknown-section").hidden = model.unknown_machines.length === 0;
    by("unknown").replaceChildren(...model.unknown_machines.map((machine) => {
      const item = make("li", "entry");
      const mac = item.appendChild(make("span", "mono"));
      mac.textContent = machine.mac;
      const about = item.appendChild(make("span", "about"));
      about.textContent = [machine.vendor, machine.about, machine.uuid,
        machine.address && "has " + machine.address].filter(Boolean).join(", ");
      const when = item.appendChild(make("span", "when"));
      when.textContent = "seen " + ago(machine.seen_at_ms);
      return item;
    }));
  };

  const drawFaults = () => {
    by("faults-section").hidden = model.faults.length === 0;
    by("faults").replaceChildren(...model.faults.map((fault) => {
      const item = make("li", "fault");
      item.appendChild(make("span", "about")).textContent = fault.text;
      item.appendChild(make("span", "when")).textContent = "since " + ago(fault.since_ms);
      return item;
    }));
  };

  const MODES = {
    listen: "listens and sends nothing", proxy: "sends boot information only (proxy DHCP)",
    reservations: "serves known machines", server: "serves every machine",
  };

  const drawLinks = () => {
    by("links-section").hidden = model.links.length === 0;
    by("links").replaceChildren(...model.links.map((link) => {
      const item = make("li", "entry");
      item.appendChild(make("span", "mono")).textContent = link.name;
      const others = link.servers.map((server) => "another DHCP server" +
        (server.proxy ? " (boot only)" : "") + ": " +
        [server.address, server.mac, server.vendor].filter(Boolean).join(" ") +
        ", last seen " + ago(server.seen_at_ms));
      item.appendChild(make("span", "about")).textContent =
        [MODES[link.mode], ...others].join("; ");
      return item;
    }));
  };

  const drawCounts = () => {
    const group = by("counts");
    if (!group.firstChild) {
      for (const [key, word] of TONES) {
        const button = group.appendChild(make("button", "count"));
        button.type = "button";
        button.dataset.tone = key;
        button.appendChild(make("b"));
        button.append(" " + word);
        button.addEventListener("click", () => { tone = tone === key ? "all" : key; draw(); });
      }
    }
    for (const button of group.children) {
      const key = button.dataset.tone;
      const count = key === "all" ? model.counts.total : model.counts[key];
      setText(button.firstChild, String(count));
      button.setAttribute("aria-pressed", String(tone === key));
      button.hidden = key !== "all" && count === 0 && tone !== key;
    }
  };

  const drawDetail = () => {
    const node = open && model.nodes.find((one) => one.uuid === open);
    if (!node) { if (by("detail").open) by("detail").close(); return; }
    setText(by("detail-name"), node.name);
    setText(by("detail-uuid"), node.uuid);
    by("detail-trouble").hidden = !node.error && !node.advice;
    setText(by("detail-error"), node.error || "");
    setText(by("detail-advice"), node.advice || "");
    const facts = [
      ["State", node.state + (node.target ? ", going to " + node.target : "")],
      ["Doing", work(node) + " (" + node.progress + "%)"],
      ["Power", powerOf(node)],
      ["Hardware type", node.driver],
      ["Ports", node.macs.join(", ") || "none"],
      ["Agent", node.heartbeat_at_ms ? "reported " + ago(node.heartbeat_at_ms) : "no heartbeat"],
    ];
    if (node.transfer) {
      const { path, sent, size } = node.transfer;
      facts.push(["File", (path || "") + " " + bytes(sent) + " of " + bytes(size)]);
    }
    if (node.agent_address) {
      const how = node.weakly_authenticated ? ", weakly authenticated: not leased by this box" : "";
      facts.push(["Agent's address", node.agent_address + how]);
    }
    facts.push(["Agent authenticated by", node.agent_strength]);
    if (node.maintenance) facts.push(["Maintenance", node.maintenance_reason || "yes"]);
    by("detail-facts").replaceChildren(...facts.flatMap(([term, text]) => {
      const [key, value] = [make("dt"), make("dd")];
      key.textContent = term;
      value.textContent = text;
      return [key, value];
    }));
    const notes = node.notes.map((note) => {
      const item = make("li");
      const when = item.appendChild(make("time", "when"));
      when.dateTime = new Date(note.at_ms).toISOString();
      when.textContent = clock(note.at_ms);
      item.appendChild(make("span", "what")).textContent = note.text;
      return item;
    });
    by("detail-notes").replaceChildren(...notes);
  };

  const draw = () => {
    if (!model) return;
    drawCounts();
    drawNodes();
    drawFaults();
    drawLinks();
    drawStrangers();
    drawDetail();
    const { total, active, failed } = model.counts;
    document.title = (failed ? "(" + failed + " failed) " : "")
      + active + " of " + total + " active - Trivet";
  };

  const show = (uuid) => {
    open = uuid;
    drawDetail();
    by("detail").showModal();
  };

  const receive = (text) => {
    model = JSON.parse(text);
    receivedAt = Date.now();
    draw();
    watch();
  };

  // Shows whether the data on the page is up to date.
  const watch = () => {
    const silent = Date.now() - (receivedAt || startedAt) > STALE_MS;
    const streams = performance.now() - streamAt < STALE_MS;
    const connection = receivedAt === null ? "wait" : (streams ? "live" : "poll");
    const state = silent ? "lost" : connection;
    mark(by("link"), "link", state);
    setText(by("link"), { wait: "connecting", lost: "box cannot be reached", live: "live",
      poll: "live, by polling" }[state]);
    by("lost").hidden = state !== "lost";
    by("main").classList.toggle("old", state === "lost");
    if (state === "lost") {
      setText(by("lost"), "The box cannot be reached since " + clock(receivedAt || startedAt)
        + ". What you see below is old. Trying again every second.");
    }
  };

  const stream = () => {
    const source = new EventSource("/panel/events");
    source.addEventListener("message", (event) => {
      streamAt = performance.now();
      receive(event.data);
    });
    source.addEventListener("error", () => {
      streamAt = -Infinity;
      // A closed EventSource does not reconnect automatically.
      if (source.readyState === EventSource.CLOSED) setTimeout(stream, 5000);
    });
  };

  const poll = async () => {
    if (performance.now() - streamAt > STALE_MS - POLL_MS) {
      try {
        const answer = await fetch("/panel/nodes.json", {
          cache: "no-store", signal: AbortSignal.timeout(STALE_MS - POLL_MS),
        });
        if (answer.ok) receive(await answer.text());
      } catch (error) {
        // watch() shows that the box does not reply.
      }
    }
    watch();
    setTimeout(poll, POLL_MS);
  };

  by("search").addEventListener("input", draw);
  by("detail-close").addEventListener("click", () => by("detail").close());
  by("detail").addEventListener("close", () => { open = null; });
  by("detail").addEventListener("click", (event) => {
    if (event.target === by("detail")) by("detail").close();
  });
  stream();
  setTimeout(poll, 300);
})();
