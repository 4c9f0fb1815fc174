// Runs when the page opens.

async function start() {
  const data = JSON.parse(await unpack("data"));
  const runs = new Runs(data);
  const panel = new RunPanel(runs);
  const open = (places, opener) => panel.open(places, opener);
  const openByName = (names, opener) => open(names.map((name) => runs.places.get(name)).filter((run) => run !== undefined), opener);
  listTrials(runs, open);
  listRuns(runs, open);
  if (!data.charts.length) return;
  document.querySelectorAll("details.values").forEach((details) =>
    foldedValues(details, data.charts[Number(details.dataset.chart)], openByName));
  // The content security policy allows this script by its hash.
  document.head.append(Object.assign(document.createElement("script"), { textContent: await unpack("vega") }));
  drawFigures(data, openByName);
}

document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
  const code = button.parentElement.querySelector("code");
  const status = button.parentElement.querySelector(".copied");
  try {
    await navigator.clipboard.writeText(code.textContent);
    status.textContent = "Copied.";
  } catch {
    // Without permission for the clipboard, the text is selected.
    getSelection().selectAllChildren(code);
    status.textContent = "Selected: copy it with the keyboard.";
  }
}));

start().catch((error) => {
  const trouble = byId("trouble");
  trouble.hidden = false;
  trouble.textContent = `Runs and figures cannot be shown in this browser (${error.message}); the table below can be read.`;
  console.error(error);
});
