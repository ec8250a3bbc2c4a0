#include "lab/predict/devices.h"

#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

using D = const PublishedDevice&;

// Returns the figure as a cell; null if the maker does not state it (0).
Json stated(double figure) {
  return figure > 0 ? Json(figure) : Json();
}

}  // namespace

Table device_table() {
  const Fields<PublishedDevice> fields = {
      {col::name, [](D d) { return Json(d.name); }},
      {real_column("fp32_tflops", "fp32", "TFLOP/s", 1, "of products, dense, without TF32"),
       [](D d) { return stated(d.fp32_tflops); }},
      {real_column("tf32_tflops", "tf32", "TFLOP/s", 1, "likewise, of fp32 rounded to TF32"),
       [](D d) { return stated(d.tf32_tflops); }},
      {real_column("bf16_tflops", "bf16", "TFLOP/s", 1, "likewise, sums in fp32"),
       [](D d) { return stated(d.bf16_tflops); }},
      {real_column("fp16_tflops", "fp16", "TFLOP/s", 1, "likewise, sums in fp32"),
       [](D d) { return stated(d.fp16_tflops); }},
      {real_column("fp8_tflops", "fp8", "TFLOP/s", 1, "likewise, sums in fp32"),
       [](D d) { return stated(d.fp8_tflops); }},
      {real_column("bandwidth_gb_s", "bandwidth", "GB/s", 0),
       [](D d) { return stated(d.bandwidth_gb_s); }},
      {real_column("memory_gb", "memory", "GB", 0, "as its maker says"),
       [](D d) { return stated(d.memory_gb); }},
      {real_column("usable_gib", "usable", "GiB", 1, "what a program gets"),
       [](D d) { return stated(d.usable_gib); }},
      {text_column("usable_from", "usable is",
                   "measured here, reported by drivers elsewhere, or estimated from the memory"),
       [](D d) { return Json(d.usable_from); }},
      {real_column("host_gb_s", "to the host", "GB/s", 1, "each way, nominal"),
       [](D d) { return stated(d.host_gb_s); }},
      {text_column("link", {}, "between devices of one host, beside PCIe"),
       [](D d) { return or_null(d.link); }},
      {real_column("link_gb_s", "link", "GB/s", 0, "each way, nominal"),
       [](D d) { return stated(d.link_gb_s); }},
      {int_column("link_ranks", "joins", "devices"),
       [](D d) { return d.link_ranks > 0 ? Json(d.link_ranks) : Json(); }},
      {real_column("watts", "power", "W", 0, "at most"), [](D d) { return stated(d.watts); }},
      {col::source.titled("peaks from"), [](D d) { return Json(d.source); }}};
  Table table =
      table_of("devices", "Devices by their published peaks", fields, published_devices());
  table.notes = {
      "peaks without sparsity and with sums in fp32, at which GeForce runs half as fast as with "
      "sums in fp16",
      "B200 without sparsity; the handout of 2026 takes 2,500 TFLOP/s for its bf16 and 80 for its "
      "fp32",
      "MI300X: for bytes alone; times are of NVIDIA's devices"};
  return table;
}

void add_published_peaks(std::string_view device, Table& ceilings) {
  const PublishedDevice* known = known_device(device);
  if (known == nullptr) return;
  const std::size_t ceiling = ceilings.index_of("ceiling").value();
  const std::size_t dtype = ceilings.index_of("dtype").value();
  ceilings.columns.push_back(
      real_column("published", "published", "", 1, "by the device's maker, in the same unit"));
  for (std::vector<Json>& row : ceilings.rows) {
    Json peak;
    if (row[ceiling] == Json("bandwidth")) peak = known->bandwidth_gb_s;
    if (row[dtype] == Json("f32")) peak = 1e3 * known->fp32_tflops;
    if (row[dtype] == Json("bf16")) peak = stated(1e3 * known->bf16_tflops);
    if (row[dtype] == Json("f16")) peak = stated(1e3 * known->fp16_tflops);
    if (row[dtype] == Json("f8e4m3")) peak = stated(1e3 * known->fp8_tflops);
    row.push_back(std::move(peak));
  }
}

}  // namespace tracestep
