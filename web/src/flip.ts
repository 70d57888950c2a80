// Slides the rows of a short list from their old places to their new ones.

const still = matchMedia("(prefers-reduced-motion: reduce)");
const MOVE_MS = 400;

/** Notes the places of the rows with a user, and returns a function that slides them after a change. */
export function noteRows(root: ParentNode): () => void {
  const before = new Map(rows(root).map((row) => [row.dataset.user!, row.getBoundingClientRect().top]));
  return () => {
    if (still.matches) return;
    for (const row of rows(root)) {
      const was = before.get(row.dataset.user!), moved = was === undefined ? 0 : was - row.getBoundingClientRect().top;
      if (moved) row.animate([{ transform: `translateY(${moved}px)`, zIndex: moved > 0 ? 2 : 1 }, { transform: "none", zIndex: moved > 0 ? 2 : 1 }], { duration: MOVE_MS, easing: "cubic-bezier(.2,.8,.2,1)" });
    }
  };
}

const rows = (root: ParentNode): HTMLElement[] => [...root.querySelectorAll<HTMLElement>("[data-user]")];
