// Reads the published figures of data/ (what they are: data/README.md).
#include "lab/published/data.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "embedded/published_files.h"
#include "lab/published/tables.h"
#include "lab/report/csv_reader.h"

namespace tracestep {
namespace {

// One row of a file, by the names of its columns. The files are ours: a mistake in one is a bug.
class Record {
 public:
  Record(const std::vector<std::string>& names, const std::vector<std::string>& cells)
      : names_(names), cells_(cells) {
    TRACESTEP_CHECK(names.size() == cells.size(), "{} cells under {} columns; the first is \"{}\"",
                    cells.size(), names.size(), cells.front());
  }

  const std::string& text(std::string_view column) const {
    const auto found = std::ranges::find(names_, column);
    TRACESTEP_CHECK(found != names_.end(), "no column \"{}\"", column);
    return cells_[static_cast<std::size_t>(found - names_.begin())];
  }
  bool has(std::string_view cell) const { return std::ranges::find(cells_, cell) != cells_.end(); }
  double number(std::string_view column) const {
    const std::string& cell = text(column);
    double out = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), out);
    TRACESTEP_CHECK(error == std::errc() && end == cell.data() + cell.size(), "{} \"{}\"", column,
                    cell);
    return out;
  }
  // Of a cell that may be empty.
  double number_or(std::string_view column, double otherwise) const {
    return text(column).empty() ? otherwise : number(column);
  }
  std::int64_t whole_or(std::string_view column, std::int64_t otherwise) const {
    return static_cast<std::int64_t>(number_or(column, static_cast<double>(otherwise)));
  }

 private:
  const std::vector<std::string>& names_;
  const std::vector<std::string>& cells_;
};

template <class Out>
std::vector<Out> read_all(std::string_view csv, Out (*read)(const Record& record)) {
  const std::vector<std::vector<std::string>> rows = parse_csv(csv, "published data");
  std::vector<Out> out;
  for (std::size_t i = 1; i < rows.size(); ++i) out.push_back(read(Record(rows[0], rows[i])));
  return out;
}

PublishedClock clock_named(std::string_view name) {
  if (name == "wall") return PublishedClock::kWall;
  if (name == "profiled") return PublishedClock::kProfiled;
  if (name == "device span") return PublishedClock::kDeviceSpan;
  TRACESTEP_CHECK(name == "host ranges", "no clock \"{}\"", name);
  return PublishedClock::kHostRange;
}

PublishedStudy read_study(const Record& r) {
  return {r.text("id"), r.text("about"), static_cast<int>(r.number("saved_scores"))};
}

PublishedTime read_time(const Record& r) {
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

PublishedPeak read_peak(const Record& r) {
  return {r.text("study"),     r.text("table"),          r.text("pass"),       r.text("size"),
          r.text("precision"), r.whole_or("context", 0), r.number("gigabytes")};
}

PublishedAttention read_attention(const Record& r) {
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

PublishedPair read_pair(const Record& r) {
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

PublishedKernel read_kernel(const Record& r) {
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

PublishedShare read_share(const Record& r) {
  return {.study = r.text("study"),
          .device = r.text("device"),
          .pass = r.text("pass"),
          .size = r.text("size"),
          .context = r.whole_or("context", 0),
          .percent = r.number_or("percent", NAN),
          .is_oom = r.text("status") == "oom"};
}

PublishedParts read_parts(const Record& r) {
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

PublishedAllocation read_allocation(const Record& r) {
  return {.study = r.text("study"),
          .pass = r.text("pass"),
          .size = r.text("size"),
          .context = r.whole_or("context", 0),
          .category = r.text("category"),
          .fp32_mib = r.number("fp32_mib"),
          .bf16_mib = r.number("bf16_mib"),
          .difference_mib = r.number("difference_mib")};
}

PublishedArithmetic read_arithmetic(const Record& r) {
  return {.study = r.text("study"),
          .quantity = r.text("quantity"),
          .pass = r.text("pass"),
          .size = r.text("size"),
          .context = r.whole_or("context", 0),
          .printed = r.number("printed"),
          .digits = static_cast<int>(r.number("digits"))};
}

PublishedDevice read_device(const Record& r) {
  PublishedDevice out;
  out.name = r.text("name");
  out.fp32_tflops = r.number("fp32_tflops");
  out.tf32_tflops = r.number_or("tf32_tflops", 0);
  out.bf16_tflops = r.number_or("bf16_tflops", 0);
  out.fp16_tflops = r.number_or("fp16_tflops", 0);
  out.bandwidth_gb_s = r.number("bandwidth_gb_s");
  out.host_gb_s = r.number("host_gb_s");
  out.words = r.text("words");
  out.form = r.text("form");
  out.maker = r.text("maker");
  out.link = r.text("link");
  out.link_gb_s = r.number_or("link_gb_s", 0);
  out.link_ranks = static_cast<int>(r.whole_or("link_ranks", 0));
  out.memory_gb = r.number("memory_gb");
  out.usable_gib = r.number("usable_gib");
  out.usable_from = r.text("usable_from");
  out.watts = r.number_or("watts", 0);
  out.source = r.text("source");
  return out;
}

// "small" in any column, or "context=128" in that one.
bool has_cell(const Record& row, std::string_view cell) {
  const std::size_t equals = cell.find('=');
  if (equals == std::string_view::npos) return row.has(cell);
  return row.text(cell.substr(0, equals)) == cell.substr(equals + 1);
}

}  // namespace

std::span<const PublishedDevice> published_devices() {
  static const std::vector<PublishedDevice> devices =
      read_all(published_files::kDevicesCsv, read_device);
  return devices;
}

Published published_tables() {
  return {.studies = read_all(published_files::kStudiesCsv, read_study),
          .times = read_all(published_files::kTimesCsv, read_time),
          .peaks = read_all(published_files::kPeaksCsv, read_peak),
          .attention = read_all(published_files::kAttentionCsv, read_attention),
          .pairs = read_all(published_files::kCompiledCsv, read_pair),
          .kernels = read_all(published_files::kKernelsCsv, read_kernel),
          .product_shares = read_all(published_files::kProductSharesCsv, read_share),
          .parts = read_all(published_files::kAttentionPartsCsv, read_parts),
          .allocations = read_all(published_files::kAllocationsCsv, read_allocation),
          .arithmetic = read_all(published_files::kPrintedArithmeticCsv, read_arithmetic)};
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
        cells, [&](const std::string& cell) { return has_cell(Record(all[0], all[i]), cell); });
    if (!has_all) continue;
    TRACESTEP_CHECK(match == nullptr, "{} has two rows of {}", file, fmt::join(cells, ", "));
    match = &all[i];
  }
  TRACESTEP_CHECK(match != nullptr, "{} has no row of {}", file, fmt::join(cells, ", "));
  return Record(all[0], *match).number(column);
}

}  // namespace tracestep
