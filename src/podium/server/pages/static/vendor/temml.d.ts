// What lib/math.js uses of Temml, for whoever reads types.
declare const temml: {
  render(
    expression: string,
    element: Element,
    options: { displayMode: boolean; throwOnError: boolean; [more: string]: unknown },
  ): void;
};
export default temml;
