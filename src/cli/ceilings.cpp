#include "cli/devices.h"

#include "backends/cpu/ceilings.h"
#include "lab/report/known_columns.h"
#include "session/devices.h"

namespace tracestep::cli {
namespace {

Column rate(std::string name, std::string title, std::string unit, std::string description = "") {
  return real_column(std::move(name), std::move(title), std::move(unit), 1, std::move(description));
}

Table arithmetic(const CpuCeilings& c) {
  Table table{.name = "arithmetic",
              .title = "Peak arithmetic",
              .columns = {text_column("simd", "SIMD"), int_column("threads"),
                          rate("fma_gflops", "float32 multiply-add", "GFLOP/s"),
                          rate("products_f32_percent", "matrix products, float32", "% of peak"),
                          rate("products_bf16_percent", "bfloat16 storage", "% of peak")}};
  table.add_row({c.simd, c.threads, c.fma_gflops, 100.0 * c.weighted_share(DType::kF32),
                 100.0 * c.weighted_share(DType::kBF16)});
  return table;
}

Table bandwidth(const CpuCeilings& c) {
  Table table{
      .name = "bandwidth",
      .title = "Memory bandwidth",
      .columns = {
          bytes_column("array_bytes", "array"), rate("copy_gb_s", "copy", "GB/s", "y = x"),
          rate("copy_streaming_gb_s", "streaming copy", "GB/s", "stores that bypass the caches"),
          rate("triad_gb_s", "triad", "GB/s", "y = a + s b"),
          rate("update_gb_s", "update", "GB/s",
               "four arrays read, three written in place, as AdamW does")}};
  for (const BandwidthCeiling& b : c.bandwidths) {
    table.add_row({b.array_bytes, b.copy_gb_s, b.copy_streaming_gb_s, b.triad_gb_s, b.update_gb_s});
  }
  return table;
}

Table products(const CpuCeilings& c) {
  Table table{.name = "products",
              .title = "Matrix products of training",
              .columns = {text_column("product"), col::dtype, int_column("m"), int_column("n"),
                          int_column("k"), rate("gflops", "speed", "GFLOP/s"),
                          rate("peak_gflops", "peak", "GFLOP/s", "measured beside it"),
                          rate("share_percent", "share", "%")}};
  for (const ProductCeiling& p : c.products) {
    table.add_row(
        {p.name, name_of(p.dtype), p.m, p.n, p.k, p.gflops, p.peak_gflops, 100.0 * p.share()});
  }
  return table;
}

}  // namespace

std::vector<Table> cpu_ceiling_tables(const RunSpec& run) {
  const auto device = make_device(run);
  const CpuCeilings measured = measure_cpu_ceilings(*device);
  return {arithmetic(measured), bandwidth(measured), products(measured)};
}

}  // namespace tracestep::cli
