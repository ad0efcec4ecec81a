// New points of experiments, for pages that show them: asked of the HTTP API, and only while the
// page is visible. A source is { id, token }: its token reads this experiment alone.

const STREAMS_MAX = 4; // browsers open six connections to a server of HTTP/1.1
const RETRY_MS = 2000;
const PAUSES_MAX = 3;
const QUIET_MS = 40_000; // without a byte: the server sends a comment every 15 seconds

// Ask the API of one experiment; the answer of a request that is refused is an error.
async function askExperiment({ id, token }, path, { body, signal } = {}) {
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(token && { Authorization: `Bearer ${token}` }) };
  const options = { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, credentials: "omit" };
  const answer = await fetch(`/api/v1/experiments/${id}${path}`, options).catch(() => {
    throw new Error("the server cannot be reached");
  });
  if (!answer.ok) {
    const { detail, code } = await answer.json().catch(() => ({}));
    const error = new Error(detail ?? `the server answered with status ${answer.status}`);
    throw Object.assign(error, { code, isPermanent: answer.status < 500 && answer.status !== 429 });
  }
  return answer;
}

// Ask the same a few times while the server is busy or away.
async function askAgain(...request) {
  for (let pauses = PAUSES_MAX; ; pauses--) {
    try {
      return await askExperiment(...request);
    } catch (error) {
      if (error.isPermanent || !pauses) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

// Say above the page that it is not live, in one line for all feeds; "" when it is again. The server's
// reasons are for programs.
function tell(text, isOver = false) {
  const before = document.querySelector("[data-live-says]");
  if (before?.dataset.liveSays === "over") return;
  before?.remove();
  if (!text) return;
  const line = document.createElement("p");
  Object.assign(line, { className: "notice", role: "status", textContent: `${text} ` });
  line.dataset.liveSays = isOver ? "over" : "away";
  if (isOver) Object.assign(line.appendChild(document.createElement("a")), { href: "", textContent: "Load the page again" });
  document.querySelector("main").prepend(line);
}

// The new points of one source's series, which `query` selects, and how its upload is.
class Feed {
  constructor(source, query, take, takeStatus = null) {
    Object.assign(this, { source, query, take, takeStatus, cursor: null, isOver: false, failures: 0 });
  }

  // Where the live points begin: asked before the samples, so that none is between the two.
  async begin() {
    try {
      const answer = await askAgain(this.source, "/scalars/new", { body: { ...this.query, start: "now" } });
      this.cursor = (await answer.json()).cursor;
    } catch (error) {
      this.end(error);
    }
  }

  // Server-sent events, read by fetch because EventSource sends no token.
  async follow(signal) {
    const body = { ...this.query, since: this.cursor, ...(this.takeStatus && { status: true }) };
    const quiet = new AbortController(); // of a connection that ended without a word, as of a network
    let timer = setTimeout(() => quiet.abort(), QUIET_MS);
    const answer = await askExperiment(this.source, "/scalars/tail", { body, signal: AbortSignal.any([signal, quiet.signal]) });
    this.failures = 0;
    tell("");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      timer = setTimeout(() => quiet.abort(), QUIET_MS);
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: ?(.*)/s)));
        if (!fields.data) continue;
        if (fields.event === "end") return this.end();
        if (fields.event === "status") {
          this.takeStatus(JSON.parse(fields.data).status);
          continue;
        }
        this.cursor = fields.id;
        this.take(JSON.parse(fields.data));
      }
    }
  }

  // By an error, or because the server says so: the token has ended, or the experiment is gone.
  end({ code, isPermanent = true } = {}) {
    this.isOver = true;
    const known = code === "too_large" ? "the page has too many series for that" : "your access has ended, or the experiment was deleted";
    tell(`New points are not shown any more: ${isPermanent ? known : "the server did not answer"}.`, true);
  }

  async keep(signal) {
    while (!signal.aborted && !this.isOver) {
      try {
        await this.follow(signal);
      } catch (error) {
        if (error.isPermanent) this.end(error);
        // Asked again below. The first time, the connection may only have been cut.
        else if (!signal.aborted && this.failures++) tell("The server does not answer. New points are shown when it does again.");
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

// Let a badge say how an upload is, if there is one.
function showStatus(badge, status) {
  if (!badge || !status || badge.textContent.toLowerCase() === status) return;
  badge.textContent = status[0].toUpperCase() + status.slice(1);
  badge.className = `badge ${{ running: "good live", finished: "good", failed: "bad", killed: "bad" }[status] ?? ""}`;
  badge.removeAttribute("title"); // it is that of the status before
}

// Wait while the page is hidden.
function untilVisible() {
  return new Promise((resolve) => {
    const update = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", update);
      resolve();
    };
    document.addEventListener("visibilitychange", update);
    update();
  });
}

const SELDOM_MS = 5000;
const SELDOM_SHARE = 10;

// Return what does `work` after each call, but one at a time, not while the page is hidden, and with a
// pause of at least `pauseMs` or SELDOM_SHARE times as long as it took: for what the server reads as a whole.
function makeSeldom(work, pauseMs = SELDOM_MS) {
  let isWanted = false;
  let isBusy = false;
  return async () => {
    isWanted = true;
    if (isBusy) return;
    isBusy = true;
    while (isWanted) {
      await untilVisible();
      isWanted = false;
      const began = performance.now();
      await work().catch(console.warn); // the next call asks again
      const pause = Math.max(pauseMs, SELDOM_SHARE * (performance.now() - began));
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    isBusy = false;
  };
}

// Call `start` with a signal while the page is visible; on the way back, once more.
function whileVisible(start) {
  let stop = null;
  const update = () => {
    if (document.hidden) {
      stop?.abort();
      stop = null;
    } else if (!stop) {
      stop = new AbortController();
      start(stop.signal);
    }
  };
  document.addEventListener("visibilitychange", update);
  update();
}
