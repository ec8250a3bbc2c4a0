// Reads the published figures of data/ (what they are: data/README.md).
#include "course/data.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "course/tables.h"
#include "embedded/published_files.h"
#include "lab/report/csv_reader.h"

namespace tracestep {
namespace {

PublishedClock clock_named(std::string_view name) {
  if (name == "wall") return PublishedClock::kWall;
  if (name == "profiled") return PublishedClock::kProfiled;
  if (name == "device span") return PublishedClock::kDeviceSpan;
  TRACESTEP_CHECK(name == "host ranges", "no clock \"{}\"", name);
  return PublishedClock::kHostRange;
}

PublishedStudy read_study(const CsvRecord& r) {
  return {r.text("id"), r.text("about"), static_cast<int>(r.number("saved_scores"))};
}

PublishedTime read_time(const CsvRecord& r) {
  const bool is_oom = r.text("status") == "oom";
  return {.study = r.text("study"),
          .table = r.text("table"),
          .device = r.text("device"),
          .clock = clock_named(r.text("clock")),
          .precision = r.text("precision"),
          .warmup = static_cast<int>(r.whole_or("warmup_steps", -1)),
          .pass = r.text("pass"),
          .size = r.text("size"),
          .context = r.whole_or("context", 0),
          .ms = is_oom ? 0.0 : r.number("ms"),
          .std_ms = r.number_or("std_ms", NAN),
          .is_oom = is_oom,
          .total_ms = r.number_or("total_ms", NAN),
          .warmup_ms = r.number_or("warmup_ms", NAN),
          .first_ms = r.number_or("first_ms", NAN),
          .second_ms = r.number_or("second_ms", NAN)};
}

PublishedPeak read_peak(const CsvRecord& r) {
  return {r.text("study"),     r.text("table"),          r.text("pass"),       r.text("size"),
          r.text("precision"), r.whole_or("context", 0), r.number("gigabytes")};
}

PublishedAttention read_attention(const CsvRecord& r) {
  const double unit = r.text("unit") == "GiB" ? 1024 : 1;
  return {r.text("study"),
          r.text("device"),
          r.whole_or("width", 0),
          r.whole_or("context", 0),
          r.number("forward_ms"),
          r.number("backward_ms"),
          unit * r.number("before_backward"),
          r.number_or("forward_std_ms", NAN),
          r.number_or("backward_std_ms", NAN),
          unit * r.number_or("peak", NAN),
          r.number_or("per_square", NAN)};
}

PublishedPair read_pair(const CsvRecord& r) {
  return {.study = r.text("study"),
          .device = r.text("device"),
          .size = r.text("size"),
          .width = r.whole_or("width", 0),
          .context = r.whole_or("context", 0),
          .pass = r.text("pass"),
          .eager_ms = r.number("eager_ms"),
          .compiled_ms = r.number("compiled_ms"),
          .eager_gb = r.number_or("eager_gb", NAN),
          .compiled_gb = r.number_or("compiled_gb", NAN)};
}

PublishedKernel read_kernel(const CsvRecord& r) {
  return {.study = r.text("study"),
          .table = r.text("table"),
          .device = r.text("device"),
          .pass = r.text("pass"),
          .size = r.text("size"),
          .context = r.whole_or("context", 0),
          .kernel = r.text("kernel"),
          .kind = r.text("kind"),
          .percent = r.number_or("percent", NAN),
          .total_ms = r.number_or("total_ms", NAN),
          .count = r.whole_or("count", 0),
          .is_oom = r.text("status") == "oom"};
}

PublishedShare read_share(const CsvRecord& r) {
  return {.study = r.text("study"),
          .device = r.text("device"),
          .pass = r.text("pass"),
          .size = r.text("size"),
          .context = r.whole_or("context", 0),
          .percent = r.number_or("percent", NAN),
          .is_oom = r.text("status") == "oom"};
}

PublishedParts read_parts(const CsvRecord& r) {
  return {.study = r.text("study"),
          .table = r.text("table"),
          .device = r.text("device"),
          .precision = r.text("precision"),
          .is_layer = r.text("scope") == "layer",
          .size = r.text("size"),
          .context = r.whole_or("context", 0),
          .softmax_ms = r.number_or("softmax_ms", NAN),
          .scores_ms = r.number_or("scores_ms", NAN),
          .values_ms = r.number_or("values_ms", NAN),
          .products_ms = r.number_or("products_ms", NAN),
          .ratio_percent = r.number_or("ratio_percent", NAN),
          .model_products_ms = r.number_or("model_products_ms", NAN),
          .softmax_percent = r.number_or("softmax_percent", NAN),
          .is_oom = r.text("status") == "oom"};
}

PublishedAllocation read_allocation(const CsvRecord& r) {
  return {.study = r.text("study"),
          .pass = r.text("pass"),
          .size = r.text("size"),
          .context = r.whole_or("context", 0),
          .category = r.text("category"),
          .fp32_mib = r.number("fp32_mib"),
          .bf16_mib = r.number("bf16_mib"),
          .difference_mib = r.number("difference_mib")};
}

PublishedArithmetic read_arithmetic(const CsvRecord& r) {
  return {.study = r.text("study"),
          .quantity = r.text("quantity"),
          .pass = r.text("pass"),
          .size = r.text("size"),
          .context = r.whole_or("context", 0),
          .printed = r.number("printed"),
          .digits = static_cast<int>(r.number("digits"))};
}

// "small" in any column, or "context=128" in that one.
bool has_cell(const CsvRecord& row, std::string_view cell) {
  const std::size_t equals = cell.find('=');
  if (equals == std::string_view::npos) return row.has(cell);
  return row.text(cell.substr(0, equals)) == cell.substr(equals + 1);
}

}  // namespace

Published published_tables() {
  return {.studies = read_records(published_files::kStudiesCsv, read_study),
          .times = read_records(published_files::kTimesCsv, read_time),
          .peaks = read_records(published_files::kPeaksCsv, read_peak),
          .attention = read_records(published_files::kAttentionCsv, read_attention),
          .pairs = read_records(published_files::kCompiledCsv, read_pair),
          .kernels = read_records(published_files::kKernelsCsv, read_kernel),
          .product_shares = read_records(published_files::kProductSharesCsv, read_share),
          .parts = read_records(published_files::kAttentionPartsCsv, read_parts),
          .allocations = read_records(published_files::kAllocationsCsv, read_allocation),
          .arithmetic = read_records(published_files::kPrintedArithmeticCsv, read_arithmetic)};
}

double published::number_at(std::string_view file, std::string_view column,
                            const std::vector<std::string>& cells) {
  const std::span<const published_files::File> files = published_files::files();
  const auto found = std::ranges::find(files, file, &published_files::File::name);
  TRACESTEP_CHECK(found != files.end(), "no published file \"{}\"", file);
  static std::map<std::string_view, std::vector<std::vector<std::string>>> parsed;
  static std::mutex guard;
  const std::lock_guard lock(guard);
  auto [rows, is_new] = parsed.try_emplace(found->name);
  if (is_new) rows->second = parse_csv(found->text, "published data");
  const std::vector<std::vector<std::string>>& all = rows->second;
  const std::vector<std::string>* match = nullptr;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const bool has_all = std::ranges::all_of(
        cells, [&](const std::string& cell) { return has_cell(CsvRecord(all[0], all[i]), cell); });
    if (!has_all) continue;
    TRACESTEP_CHECK(match == nullptr, "{} has two rows of {}", file, fmt::join(cells, ", "));
    match = &all[i];
  }
  TRACESTEP_CHECK(match != nullptr, "{} has no row of {}", file, fmt::join(cells, ", "));
  return CsvRecord(all[0], *match).number(column);
}

}  // namespace tracestep
