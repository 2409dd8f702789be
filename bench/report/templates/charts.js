"use strict";
// Interactive charts: plotly.js is unpacked when the first chart comes into view, and each chart is drawn when it does.
(() => {
  const figures = document.querySelectorAll("figure.has-chart");
  // without these the images stay
  if (!figures.length || !("DecompressionStream" in window) || !("IntersectionObserver" in window)) return;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 40rem)");
  const BLACK = "#000000";
  const CONFIG = {
    displaylogo: false,
    responsive: true,
    displayModeBar: false,
    scrollZoom: false,
    showSendToCloud: false,
    showLink: false,
  };
  let library = null;

  async function unpack() {
    const packed = atob(document.getElementById("plotly").textContent.trim());
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const source = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    const script = document.createElement("script");
    script.textContent = source;
    document.head.append(script);
    return window.Plotly;
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // 1, 2, 5, or powers of ten alone where they are many; within less than a decade plotly's own
  function logSteps(values) {
    const positive = values.filter((value) => value > 0);
    if (!positive.length) return {};
    const extent = (pick) => Math.log10(positive.reduce((a, b) => pick(a, b)));
    const decades = extent(Math.max) - extent(Math.min);
    return decades < 0.7 ? {} : { dtick: decades < 3.5 ? "D2" : Math.ceil(decades / 8) };
  }

  function axis(data, scale, panel, values) {
    const shared = {
      title: { text: data.title, standoff: 8 },
      type: scale,
      gridcolor: colour("--line"),
      linecolor: colour("--soft"),
      zeroline: false,
      automargin: true,
      // a zoom is kept until the panel or the scale changes
      uirevision: `${panel} ${scale}`,
    };
    if (data.tick_format) shared.tickformat = data.tick_format;
    if (scale === "log" && data.ticks.length && data.ticks.length <= 12) {
      return { ...shared, tickmode: "array", tickvals: data.ticks, ticktext: data.ticks.map(String), minor: { ticks: "" } };
    }
    if (scale === "log") return { ...shared, ...logSteps(values) };
    return scale === "linear" ? { ...shared, rangemode: data.from_zero ? "tozero" : "normal" } : shared;
  }

  function layout(state) {
    const { chart } = state;
    const values = (which) => chart.panels[state.panel].traces.flatMap((trace) => trace[which]);
    return {
      font: { family: "system-ui, sans-serif", size: 13, color: colour("--ink") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: narrow.matches ? 50 : 66, r: 12, t: 12, b: 50 },
      barmode: "relative",
      hovermode: "closest",
      dragmode: narrow.matches ? false : "zoom",
      showlegend: true,
      // which series are hidden is kept here, whether the pointer or the keyboard hid them
      legend: { uirevision: ++state.revision, orientation: "h", yanchor: "top", y: -0.2, x: 0, traceorder: "normal" },
      uirevision: "kept",
      xaxis: axis(chart.x, state.x, state.panel, values("x")),
      yaxis: axis(chart.y, state.y, state.panel, values("y")),
    };
  }

  // black lines would vanish on a dark page
  const readable = (value) => (value === BLACK ? colour("--ink") : value);
  const readableIn = (part) => ({ ...part, color: readable(part.color), ...(part.line ? { line: readableIn(part.line) } : {}) });

  function restyled(trace) {
    const copy = { ...trace };
    for (const part of ["line", "marker", "error_y"]) if (copy[part]) copy[part] = readableIn(copy[part]);
    if (copy.fillcolor) copy.fillcolor = readable(copy.fillcolor);
    return copy;
  }

  async function draw(state) {
    library ??= unpack();
    const plotly = await library;
    const traces = state.chart.panels[state.panel].traces.map((trace) => {
      return { ...restyled(trace), visible: state.hidden.has(trace.uid) ? "legendonly" : true };
    });
    await plotly.react(state.plot, traces, layout(state), CONFIG);
  }

  function remember(state) {
    for (const trace of state.plot._fullData) {
      if (trace.visible === true) state.hidden.delete(trace.uid);
      // plotly itself says false of a series without points
      if (trace.visible === "legendonly") state.hidden.add(trace.uid);
    }
  }

  // the legend as plotly draws it takes no keyboard: its items become check boxes that do
  function reachLegend(state) {
    const shown = state.plot._fullData.filter((trace) => trace.showlegend !== false);
    state.plot.querySelectorAll(".legendtoggle").forEach((item, i) => {
      if (!shown[i]) return;
      const attributes = { tabindex: 0, role: "checkbox", "aria-label": `show ${shown[i].name}`, "aria-checked": shown[i].visible === true };
      for (const [name, value] of Object.entries(attributes)) item.setAttribute(name, value);
      item.onkeydown = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        state.focused = i;
        toggle(state, shown[i]);
      };
      if (state.focused === i) item.focus({ preventScroll: true });
    });
    state.focused = null;
  }

  function toggle(state, trace) {
    const members = state.plot._fullData.filter((other) => other === trace || (trace.legendgroup && other.legendgroup === trace.legendgroup));
    const visible = trace.visible === true ? "legendonly" : true;
    window.Plotly.restyle(state.plot, { visible }, members.map((member) => member.index));
  }

  function scaleButton(state, which) {
    const button = state.controls.querySelector(`button.${which}`);
    const tell = () => button.setAttribute("aria-pressed", state[which] === "log");
    if (!state.chart[which].switchable) {
      button.remove();
      return;
    }
    button.addEventListener("click", () => {
      state[which] = state[which] === "log" ? "linear" : "log";
      tell();
      draw(state);
    });
    tell();
  }

  function panelChoice(state) {
    const label = state.controls.querySelector("label");
    if (state.chart.panels.length < 2) {
      label.remove();
      return;
    }
    const select = label.querySelector("select");
    state.chart.panels.forEach((panel, i) => select.add(new Option(panel.title, i)));
    select.addEventListener("change", () => {
      state.panel = Number(select.value);
      draw(state);
    });
  }

  async function start(figure) {
    const chart = JSON.parse(figure.querySelector("script.chart-data").textContent);
    const [plot, controls] = [".chart", ".controls"].map((part) => figure.querySelector(part));
    const state = { chart, plot, controls, panel: 0, x: chart.x.scale, y: chart.y.scale, hidden: new Set(), revision: 0, focused: null };
    figure.classList.add("live");
    try {
      await draw(state);
    } catch (error) {
      figure.classList.remove("live");
      throw error;
    }
    panelChoice(state);
    scaleButton(state, "x");
    scaleButton(state, "y");
    controls.hidden = false;
    plot.on("plotly_afterplot", () => {
      remember(state);
      reachLegend(state);
    });
    reachLegend(state);
    for (const media of [dark, narrow]) media.addEventListener("change", () => draw(state));
  }

  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((found) => found.isIntersecting)) {
        observer.unobserve(entry.target);
        start(entry.target);
      }
    },
    { rootMargin: "300px" },
  );
  figures.forEach((figure) => observer.observe(figure));
})();
