// The viewer of the API page: Swagger UI in place of the plain reference, which stays without script.

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

async function show() {
  const answer = await fetch("/api/v1/openapi.json");
  if (!answer.ok) throw new Error(`openapi.json: ${answer.status}`);
  const spec = await answer.json();
  delete spec.servers; // the page's own is the only one that its policy lets it reach
  const viewer = SwaggerUIBundle({
    spec,
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
    onComplete: () => {
      document.getElementById("reference").remove(); // half of the page's elements
      if (token) viewer.preauthorizeApiKey("HTTPBearer", token);
    },
  });
}

// Swagger UI names its search by a placeholder alone.
const viewer = document.getElementById("viewer");
new MutationObserver((_, observer) => {
  const input = viewer.querySelector(".operation-filter-input");
  if (!input) return;
  Object.assign(input, { placeholder: "Search", ariaLabel: "Search operations" });
  observer.disconnect();
}).observe(viewer, { childList: true, subtree: true });
show();
