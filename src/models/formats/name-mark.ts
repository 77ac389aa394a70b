/** A mark of a set of names, whatever their order: equal sets have equal marks, sets that differ by accident do not. Of 300,000 names it keeps two numbers. */
export class NameMark {
  #low = 0;
  #high = 0;

  add(name: string): void {
    let low = 0x811c9dc5;
    let high = 0x9e3779b9;
    for (let index = 0; index < name.length; index++) {
      const unit = name.charCodeAt(index);
      low = Math.imul(low ^ unit, 0x01000193);
      high = Math.imul(high ^ unit, 0x85ebca6b) ^ (high >>> 13);
    }
    this.#low = (this.#low + low) >>> 0;
    this.#high = (this.#high + high) >>> 0;
  }

  toString(): string {
    return this.#high.toString(16).padStart(8, '0') + this.#low.toString(16).padStart(8, '0');
  }
}
