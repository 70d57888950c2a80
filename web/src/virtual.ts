// Positions of the rows of a list that is longer than a browser's largest element.
//
// The list's element has at most MAX_HEIGHT pixels. If the rows need more, the element shows a part of
// them: shift is the number of pixels of rows above that part. A small step of scrolling moves by
// as many pixels of rows; a large one, such as a pull at the scroll bar, moves in proportion.

const MAX_HEIGHT = 4_000_000;

export class Virtual {
  private shift = 0;
  private last = 0;

  constructor(public rows: number, readonly row: number) {}

  get height(): number { return Math.min(this.rows * this.row, MAX_HEIGHT); }
  private get hidden(): number { return this.rows * this.row - this.height; }

  /** Updates the part for a scroll position within the element, and returns the position to use in its place. */
  scroll(top: number, view: number): number {
    if (this.hidden > 0) {
      if (Math.abs(top - this.last) > view) this.shift = Math.round((Math.max(0, top) / Math.max(1, this.height - view)) * this.hidden);
      else if (top < view && this.shift > 0 || top > this.height - 2 * view && this.shift < this.hidden) return this.jump(top + this.shift, view);
      this.shift = Math.min(Math.max(this.shift, 0), this.hidden);
    }
    this.last = top;
    return top;
  }

  /** Scrolls to a distance from the first row, and returns the scroll position. */
  jump(distance: number, view: number): number {
    const end = Math.max(1, this.rows * this.row - view), share = Math.min(Math.max(distance / end, 0), 1);
    if (distance < 4 * view) this.shift = 0;
    else if (distance > end - 4 * view) this.shift = this.hidden;
    else this.shift = Math.min(Math.max(Math.round(distance - share * (this.height - view)), 0), this.hidden);
    this.last = distance - this.shift;
    return this.last;
  }

  /** The rows from first to end, without it, that a scroll position shows, with a few more on both sides. */
  visible(top: number, view: number, more = 6): { first: number; end: number } {
    const first = Math.floor((top + this.shift) / this.row);
    return { first: Math.max(0, first - more), end: Math.min(this.rows, first + Math.ceil(view / this.row) + 1 + more) };
  }

  /** The distance of a row from the top of the element. */
  offset(index: number): number { return index * this.row - this.shift; }
}
