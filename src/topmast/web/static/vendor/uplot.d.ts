// Types of the vendored file, as far as <time-series> needs them.
declare const uPlot: any;
export default uPlot;
