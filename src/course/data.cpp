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
  using P = PublishedStudy;
  static constexpr CsvField<P> kFields[] = {
      {"id", &P::id}, {"about", &P::about}, {"saved_scores", &P::saved_scores, kNeeded}};
  return filled<P>(r, kFields);
}

PublishedTime read_time(const CsvRecord& r) {
  using P = PublishedTime;
  static constexpr CsvField<P> kFields[] = {
      {"study", &P::study},         {"table", &P::table},          {"device", &P::device},
      {"precision", &P::precision}, {"warmup_steps", &P::warmup},  {"pass", &P::pass},
      {"size", &P::size},           {"context", &P::context},      {"ms", &P::ms},
      {"std_ms", &P::std_ms},       {"status", &P::is_oom, "oom"}, {"total_ms", &P::total_ms},
      {"warmup_ms", &P::warmup_ms}, {"first_ms", &P::first_ms},    {"second_ms", &P::second_ms}};
  P out = filled<P>(r, kFields);
  out.clock = clock_named(r.text("clock"));
  out.ms = out.is_oom ? 0.0 : r.number("ms");
  return out;
}

PublishedPeak read_peak(const CsvRecord& r) {
  using P = PublishedPeak;
  static constexpr CsvField<P> kFields[] = {{"study", &P::study},
                                            {"table", &P::table},
                                            {"pass", &P::pass},
                                            {"size", &P::size},
                                            {"precision", &P::precision},
                                            {"context", &P::context},
                                            {"gigabytes", &P::gigabytes, kNeeded}};
  return filled<P>(r, kFields);
}

PublishedAttention read_attention(const CsvRecord& r) {
  using P = PublishedAttention;
  static constexpr CsvField<P> kFields[] = {{"study", &P::study},
                                            {"device", &P::device},
                                            {"width", &P::width},
                                            {"context", &P::context},
                                            {"forward_ms", &P::forward_ms, kNeeded},
                                            {"backward_ms", &P::backward_ms, kNeeded},
                                            {"before_backward", &P::before_backward_mib, kNeeded},
                                            {"forward_std_ms", &P::forward_std_ms},
                                            {"backward_std_ms", &P::backward_std_ms},
                                            {"peak", &P::peak_mib},
                                            {"per_square", &P::per_square}};
  P out = filled<P>(r, kFields);
  const double unit = r.text("unit") == "GiB" ? 1024 : 1;
  out.before_backward_mib *= unit;
  out.peak_mib *= unit;
  return out;
}

PublishedPair read_pair(const CsvRecord& r) {
  using P = PublishedPair;
  static constexpr CsvField<P> kFields[] = {{"study", &P::study},
                                            {"device", &P::device},
                                            {"size", &P::size},
                                            {"width", &P::width},
                                            {"context", &P::context},
                                            {"pass", &P::pass},
                                            {"eager_ms", &P::eager_ms, kNeeded},
                                            {"compiled_ms", &P::compiled_ms, kNeeded},
                                            {"eager_gb", &P::eager_gb},
                                            {"compiled_gb", &P::compiled_gb}};
  return filled<P>(r, kFields);
}

PublishedKernel read_kernel(const CsvRecord& r) {
  using P = PublishedKernel;
  static constexpr CsvField<P> kFields[] = {
      {"study", &P::study},       {"table", &P::table}, {"device", &P::device},
      {"pass", &P::pass},         {"size", &P::size},   {"context", &P::context},
      {"kernel", &P::kernel},     {"kind", &P::kind},   {"percent", &P::percent},
      {"total_ms", &P::total_ms}, {"count", &P::count}, {"status", &P::is_oom, "oom"}};
  return filled<P>(r, kFields);
}

PublishedShare read_share(const CsvRecord& r) {
  using P = PublishedShare;
  static constexpr CsvField<P> kFields[] = {{"study", &P::study},         {"device", &P::device},
                                            {"pass", &P::pass},           {"size", &P::size},
                                            {"context", &P::context},     {"percent", &P::percent},
                                            {"status", &P::is_oom, "oom"}};
  return filled<P>(r, kFields);
}

PublishedParts read_parts(const CsvRecord& r) {
  using P = PublishedParts;
  static constexpr CsvField<P> kFields[] = {{"study", &P::study},
                                            {"table", &P::table},
                                            {"device", &P::device},
                                            {"precision", &P::precision},
                                            {"scope", &P::is_layer, "layer"},
                                            {"size", &P::size},
                                            {"context", &P::context},
                                            {"softmax_ms", &P::softmax_ms},
                                            {"scores_ms", &P::scores_ms},
                                            {"values_ms", &P::values_ms},
                                            {"products_ms", &P::products_ms},
                                            {"ratio_percent", &P::ratio_percent},
                                            {"model_products_ms", &P::model_products_ms},
                                            {"softmax_percent", &P::softmax_percent},
                                            {"status", &P::is_oom, "oom"}};
  return filled<P>(r, kFields);
}

PublishedAllocation read_allocation(const CsvRecord& r) {
  using P = PublishedAllocation;
  static constexpr CsvField<P> kFields[] = {{"study", &P::study},
                                            {"pass", &P::pass},
                                            {"size", &P::size},
                                            {"context", &P::context},
                                            {"category", &P::category},
                                            {"fp32_mib", &P::fp32_mib, kNeeded},
                                            {"bf16_mib", &P::bf16_mib, kNeeded},
                                            {"difference_mib", &P::difference_mib, kNeeded}};
  return filled<P>(r, kFields);
}

PublishedArithmetic read_arithmetic(const CsvRecord& r) {
  using P = PublishedArithmetic;
  static constexpr CsvField<P> kFields[] = {{"study", &P::study},
                                            {"quantity", &P::quantity},
                                            {"pass", &P::pass},
                                            {"size", &P::size},
                                            {"context", &P::context},
                                            {"printed", &P::printed, kNeeded},
                                            {"digits", &P::digits, kNeeded}};
  return filled<P>(r, kFields);
}

// True if the row has `cell`: "small" in any column, "context=128" in that one.
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
