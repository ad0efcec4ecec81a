// The last image of each series in `<section data-images>`, which has { id, token, images: [{ run,
// tag }] } as JSON. Bytes come from the HTTP API with this token, and are shown as images alone: their
// type is one of those below, whatever the answer says.

const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/bmp", "image/webp"];
const SIZES = 2; // an image summary begins with two blobs: its width and height

async function showImages(section) {
  const { id, token, images } = JSON.parse(section.dataset.images);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const names = (key) => [...new Set(images.map((image) => image[key]))];
  const answer = await fetch(`/api/v1/experiments/${id}/blob_sequences/data`, {
    method: "POST",
    headers: { ...headers, "Content-Type": "application/json" },
    body: JSON.stringify({ plugin: "images", run: names("run"), tag: names("tag"), last: 1 }),
    credentials: "omit",
  });
  if (!answer.ok) throw new Error();
  const runs = await answer.json();
  const frames = section.querySelectorAll(".image-frame");
  images.forEach(async ({ run, tag }, index) => {
    const series = Object.hasOwn(runs, run) && Object.hasOwn(runs[run], tag) ? runs[run][tag] : null;
    const key = series?.values[0]?.[SIZES]?.key;
    frames[index].textContent = "No image";
    if (!key) return;
    const sent = await fetch(`/api/v1/blobs/${encodeURIComponent(key)}`, { headers, credentials: "omit" });
    const type = IMAGE_TYPES.find((each) => each === sent.headers.get("Content-Type"));
    if (!sent.ok || !type) return;
    const image = new Image();
    image.alt = `${tag} of ${run}, step ${series.steps[0]}`.slice(0, 300);
    image.src = URL.createObjectURL(new Blob([await sent.arrayBuffer()], { type }));
    frames[index].replaceChildren(image);
  });
}

const imageSection = document.querySelector("[data-images]");
imageSection.querySelector(".images").hidden = false;
new IntersectionObserver(([{ isIntersecting }], observer) => {
  if (!isIntersecting) return;
  observer.disconnect();
  showImages(imageSection).catch(() => {
    imageSection.querySelectorAll(".image-frame").forEach((frame) => (frame.textContent = "Could not be loaded"));
  });
}, { rootMargin: "300px" }).observe(imageSection);
