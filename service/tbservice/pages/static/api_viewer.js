// The viewer of the API page: Swagger UI in place of the plain reference, which stays without script.
// It is a second of work or several, so that it comes when somebody searches or wants to try.

const { script, style } = document.currentScript.dataset;

// The filter finds words in method, path, summary and description; Swagger UI's own, only tags.
const plugin = () => ({
  // Title and text are above.
  wrapComponents: { InfoContainer: (_, { React }) => () => React.createElement("h2", null, "Operations") },
  fn: {
    opsFilter: (tags, phrase) => {
      const words = phrase.toLowerCase().split(/\s+/);
      const matches = (each) => {
        const operation = each.get("operation");
        const texts = [each.get("method"), each.get("path"), operation.get("operationId"), operation.get("description")];
        const text = texts.join(" ").toLowerCase();
        return words.every((word) => text.includes(word));
      };
      return tags
        .map((tag) => tag.set("operations", tag.get("operations").filter(matches)))
        .filter((tag) => tag.get("operations").size);
    },
  },
});

const root = document.documentElement;
const isDark = matchMedia("(prefers-color-scheme: dark)");
const followColors = () => root.classList.toggle("dark-mode", isDark.matches);
isDark.addEventListener("change", followColors);
followColors();

// The token that the answer of the form brought: into Swagger UI's memory, out of the document. The
// address becomes the page's own: to load it again makes no other token.
const tried = document.getElementById("tried");
const token = tried?.dataset.token;
if (tried) {
  delete tried.dataset.token;
  history.replaceState(null, "", "/api/v1/docs");
}

// Swagger UI reads all of a document of OpenAPI 3.1 again for each part that it shows: seconds of
// work, where one of 3.0 takes a tenth. So it gets ours as 3.0, which says the same but for the words.
function toOpenApi30(part) {
  if (Array.isArray(part)) return part.map(toOpenApi30);
  if (part === null || typeof part !== "object") return part;
  const fields = Object.entries(part).map(([name, value]) => [name, toOpenApi30(value)]);
  const { anyOf, const: only, ...rest } = Object.fromEntries(fields);
  if (only !== undefined) rest.enum = [only];
  if (rest.additionalProperties === true) delete rest.additionalProperties; // it is in each example
  if (typeof rest.exclusiveMaximum === "number") {
    Object.assign(rest, { maximum: rest.exclusiveMaximum, exclusiveMaximum: true });
  }
  if (!anyOf) return rest;
  const kinds = anyOf.filter((kind) => kind.type !== "null");
  const nullable = kinds.length < anyOf.length;
  if (kinds.length > 1) return { ...rest, anyOf: kinds, nullable };
  return { ...("$ref" in kinds[0] ? { allOf: kinds } : kinds[0]), ...rest, nullable };
}

function load(element) {
  document.head.append(element);
  return new Promise((resolve, reject) => Object.assign(element, { onload: resolve, onerror: reject }));
}

// The files of the viewer and the document, fetched once; from the moment in which they are likely.
let loaded;
function fetchAll() {
  loaded ??= Promise.all([
    fetch("/api/v1/openapi.json"),
    load(Object.assign(document.createElement("script"), { src: script })),
    load(Object.assign(document.createElement("link"), { rel: "stylesheet", href: style })),
  ]);
  return loaded;
}

async function show() {
  const [answer] = await fetchAll();
  if (!answer.ok) throw new Error(`openapi.json: ${answer.status}`);
  const spec = { ...toOpenApi30(await answer.json()), openapi: "3.0.3" };
  delete spec.servers; // the page's own is the only one that its policy lets it reach
  const viewer = SwaggerUIBundle({
    dom_id: "#viewer",
    deepLinking: true,
    filter: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    defaultModelRendering: "example",
    displayRequestDuration: true,
    persistAuthorization: false, // a token is in this page's memory alone
    queryConfigEnabled: false,
    validatorUrl: null,
    // The API takes no cookie; none is sent, so that what is tried is what a program would get.
    requestInterceptor: (request) => Object.assign(request, { credentials: "omit" }),
    plugins: [plugin],
  });
  // As an object: Swagger UI would write it as a text, and read that as YAML.
  viewer.specActions.updateSpec("{}");
  viewer.specActions.updateJsonSpec(spec);
  viewer.specActions.updateLoadingStatus("success");
  document.getElementById("reference").remove(); // half of the page's elements
  if (token) viewer.preauthorizeApiKey("HTTPBearer", token);
  return viewer;
}

// Swagger UI names its search by a placeholder alone. It takes what was typed in ours.
const viewer = document.getElementById("viewer");
const opener = document.getElementById("opener");
const search = opener.querySelector("input");
const filterInput = new Promise((resolve) => {
  new MutationObserver((_, observer) => {
    const input = viewer.querySelector(".operation-filter-input");
    if (!input) return;
    resolve(Object.assign(input, { placeholder: "Search", ariaLabel: "Search operations" }));
    observer.disconnect();
  }).observe(viewer, { childList: true, subtree: true });
});

let isShowing;
async function open() {
  if (isShowing) return;
  isShowing = true;
  opener.querySelector("output").value = "Loading the viewer";
  try {
    const shown = await show();
    const input = await filterInput; // Swagger UI draws it at a time of its own
    await new Promise((resolve) => setTimeout(resolve)); // until what was typed meanwhile is there
    shown.layoutActions.updateFilter(search.value || true);
    const isTyping = document.activeElement === search;
    opener.remove();
    if (isTyping) input.focus();
  } catch (error) {
    isShowing = loaded = undefined; // the next try fetches again
    opener.querySelector("output").value = `The viewer cannot be loaded (${error.message ?? "no answer"}).`;
  }
}

opener.hidden = false;
opener.addEventListener("focusin", () => fetchAll().catch(() => {}));
opener.addEventListener("pointerenter", () => fetchAll().catch(() => {}));
search.addEventListener("input", open);
opener.addEventListener("submit", (event) => {
  event.preventDefault();
  open();
});
if (token || location.hash.startsWith("#/")) open(); // a link to an operation in the viewer
