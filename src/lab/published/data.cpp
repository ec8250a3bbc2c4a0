// Reads the published figures of data/ (what they are: data/README.md).
#include "lab/published/data.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/published/published.h"
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
          .is_oom = is_oom};
}

PublishedPeak read_peak(const Record& r) {
  return {r.text("study"),     r.text("pass"),           r.text("size"),
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
          unit * r.number("before_backward")};
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

PublishedShares read_share(const Record& r) {
  return {r.text("study"), r.text("whole"), {r.number("percent")}};
}

// Neighbouring shares of one whole together.
std::vector<PublishedShares> read_shares() {
  std::vector<PublishedShares> out;
  for (PublishedShares& s : read_all(published::kSharesCsv, read_share)) {
    if (out.empty() || out.back().study != s.study || out.back().whole != s.whole) {
      out.push_back(std::move(s));
    } else {
      out.back().percent.push_back(s.percent.front());
    }
  }
  return out;
}

PublishedDevice read_device(const Record& r) {
  return {r.text("name"), r.number("fp32_tflops"), r.number("bf16_tflops"),
          r.number("bandwidth_gb_s"), r.number("usable_gib")};
}

}  // namespace

const PublishedDevice* known_device(std::string_view name) {
  static const std::vector<PublishedDevice> devices = read_all(published::kDevicesCsv, read_device);
  if (name.empty()) return nullptr;
  for (const PublishedDevice& d : devices) {
    if (name.find(d.name) != std::string_view::npos) return &d;
  }
  return nullptr;
}

Published published_tables() {
  return {.studies = read_all(published::kStudiesCsv, read_study),
          .times = read_all(published::kTimesCsv, read_time),
          .peaks = read_all(published::kPeaksCsv, read_peak),
          .attention = read_all(published::kAttentionCsv, read_attention),
          .shares = read_shares(),
          .pairs = read_all(published::kCompiledCsv, read_pair)};
}

}  // namespace tracestep
