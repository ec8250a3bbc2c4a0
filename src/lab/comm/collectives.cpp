#include "lab/comm/collectives.h"

#include <algorithm>
#include <memory>

#include "base/units.h"
#include "exec/rank_threads.h"
#include "lab/measure/processes.h"
#include "lab/measure/statistics.h"
#include "lab/measure/validity.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "ops/collective_sizes.h"
#include "record/recorder.h"
#include "runtime/communicator.h"
#include "session/room.h"

namespace tracestep {
namespace {

// A tensor of zeros in device memory, freed with this object.
class DeviceTensor {
 public:
  DeviceTensor(Device& device, std::int64_t count) : device_(device) {
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(float));
    ref_ = {.data = device.allocator().allocate(bytes, {}), .shape = {count}, .strides = {1}};
    device.zero(ref_.data, bytes);
  }
  ~DeviceTensor() { device_.allocator().free(ref_.data); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  const TensorRef& ref() const { return ref_; }

 private:
  Device& device_;
  TensorRef ref_;
};

// Makes one rank's calls: has its tensors, and the times at which its calls begin and end.
class TimedRank {
 public:
  TimedRank(Device& device, const CollectiveSpec& spec)
      : device_(device),
        spec_(spec),
        whole_(device, count_of(spec)),
        part_(device, part_count(count_of(spec), spec.ranks)) {}

  static std::int64_t count_of(const CollectiveSpec& spec) {
    return spec.bytes / static_cast<std::int64_t>(sizeof(float));
  }

  void run() {
    Communicator& group = *device_.group();
    for (int i = 0; i < spec_.warmup; ++i) call(group);
    device_.synchronize();
    const std::int64_t before = group.received_bytes();
    if (device_.is_asynchronous()) {
      time_by_marks(group);
    } else {
      time_by_clock(group);
    }
    received_bytes = (group.received_bytes() - before) / std::max(1, spec_.calls);
  }

  std::vector<std::int64_t> begins_ns, ends_ns;  // by call
  std::int64_t received_bytes = 0;               // in a call

 private:
  void time_by_clock(Communicator& group) {
    for (int i = 0; i < spec_.calls; ++i) {
      begins_ns.push_back(now_ns());
      call(group);
      ends_ns.push_back(now_ns());
    }
  }

  void time_by_marks(Communicator& group) {
    const auto calls = static_cast<std::size_t>(spec_.calls);
    const auto marks = device_.make_marks(calls + 1);
    marks->set(0);
    for (std::size_t i = 0; i < calls; ++i) {
      call(group);
      marks->set(i + 1);
    }
    for (std::size_t i = 0; i < calls; ++i) {
      begins_ns.push_back(marks->between_ns(0, i));
      ends_ns.push_back(marks->between_ns(0, i + 1));
    }
  }

  void call(Communicator& group) {
    const TensorRef &whole = whole_.ref(), &part = part_.ref();
    if (spec_.op == "all_reduce") {
      group.all_reduce(whole, whole);
    } else if (spec_.op == "reduce_scatter") {
      group.reduce_scatter(whole, part);
    } else {
      group.all_gather(part, whole);
    }
  }

  Device& device_;
  const CollectiveSpec& spec_;
  const DeviceTensor whole_, part_;
};

// Returns the milliseconds of call `i`: from when all ranks have begun until the last one ends.
double duration_ms(const std::vector<std::unique_ptr<TimedRank>>& ranks, std::size_t i) {
  std::int64_t begin = ranks[0]->begins_ns[i], end = ranks[0]->ends_ns[i];
  for (const auto& rank : ranks) {
    begin = std::max(begin, rank->begins_ns[i]);
    end = std::max(end, rank->ends_ns[i]);
  }
  return static_cast<double>(end - begin) * 1e-6;
}

void check(const CollectiveSpec& spec) {
  if (spec.bytes < 1 || spec.bytes % static_cast<std::int64_t>(sizeof(float)) != 0) {
    fail_usage("bytes"_field, "{} are no whole number of float32 elements", spec.bytes);
  }
}

// Returns the statistic `of` the samples; null if the row was not timed.
template <class F>
Json if_timed(const CollectiveTimes& t, const F& of) {
  return t.samples_ms.empty() ? Json() : finite_or_null(of(t.samples_ms));
}

Json gigabytes_per_s(std::int64_t bytes, const CollectiveTimes& t) {
  return if_timed(t, [bytes](const std::vector<double>& samples) {
    return static_cast<double>(bytes) / (median_of(samples) * 1e6);
  });
}

void check_room_for(const RankDevices& devices, const Place& place, const CollectiveSpec& spec) {
  const std::int64_t count = TimedRank::count_of(spec);
  const auto bytes =
      (count + part_count(count, spec.ranks)) * static_cast<std::int64_t>(sizeof(float));
  std::vector<Wanted> wanted;
  for (Device* device : devices.all()) wanted.push_back({device, bytes});
  check_room(place, wanted, devices.group()->processes());
}

void time_on(const RankDevices& devices, const Place& place, CollectiveTimes& out) {
  check_room_for(devices, place, out.spec);
  std::vector<std::unique_ptr<TimedRank>> ranks;
  for (Device* device : devices.all()) {
    ranks.push_back(std::make_unique<TimedRank>(*device, out.spec));
  }
  RankThreads threads(static_cast<int>(ranks.size()));
  const RankThreads::Failure failure =
      threads.run([&](int rank) { ranks[static_cast<std::size_t>(rank)]->run(); },
                  [&] { devices.group()->end(); });
  if (failure.error) std::rethrow_exception(failure.error);
  out.received_bytes = ranks[0]->received_bytes;
  for (int i = 0; i < out.spec.calls; ++i) {
    out.samples_ms.push_back(duration_ms(ranks, static_cast<std::size_t>(i)));
  }
}

}  // namespace

std::string label_of(const CollectiveSpec& spec) {
  return fmt::format("{} of {}, {} ranks", spec.op, format_bytes(spec.bytes), spec.ranks);
}

CollectiveTimes time_collective(const RankDevices& devices, const Place& place,
                                const CollectiveSpec& spec) {
  check(spec);
  CollectiveTimes out{.spec = spec, .are_processes = devices.group()->processes() != nullptr};
  const Outcome outcome = attempt([&] { time_on(devices, place, out); });
  out.status = outcome.status;
  out.detail = outcome.detail;
  return out;
}

namespace {

// Judges the samples of each row separately: calls have none of the labels by which steps are
// compared with each other.
void add_verdicts_of_calls(const std::vector<CollectiveTimes>& times, Table& table) {
  const std::vector<ResultRow> rows = rows_of(table, Json::object());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (times[i].status != Status::kOk) continue;
    const std::vector<Verdict> verdicts = judge(rows[i]);
    table.rows[i].back() = summary_of(verdicts);
    for (const Verdict& verdict : verdicts) {
      table.notes.push_back(verdict_line(label_of(times[i].spec), verdict));
    }
  }
}

}  // namespace

Table collective_table(const std::vector<CollectiveTimes>& times) {
  using T = CollectiveTimes;
  Fields<T> fields = {
      {as_key(text_column("collective")), [](const T& t) { return t.spec.op; }},
      {as_key(col::ranks), [](const T& t) { return t.spec.ranks; }},
      {as_key(col::bytes.titled("size", "of the whole tensor")),
       [](const T& t) { return t.spec.bytes; }},
      {col::status, [](const T& t) { return name_of(t.status); }},
      {bytes_column("received_bytes", "received", "by the first rank from the others, in a call"),
       &T::received_bytes},
      {col::median_ms("from the last rank's call to the last result"),
       [](const T& t) { return if_timed(t, median_of); }},
      {real_column("min_ms", "least", "ms", 3), [](const T& t) { return if_timed(t, min_of); }},
      {real_column("max_ms", "most", "ms", 3), [](const T& t) { return if_timed(t, max_of); }},
      {real_column("algorithm_gb_s", "algorithm", "GB/s", 2, "the tensor's bytes per second"),
       [](const T& t) { return gigabytes_per_s(t.spec.bytes, t); }},
      {real_column("bus_gb_s", "bus", "GB/s", 2, "what a rank gets from the others, per second"),
       [](const T& t) { return gigabytes_per_s(t.received_bytes, t); }},
      {data_only(col::samples_ms("every call")), [](const T& t) { return list_of(t.samples_ms); }}};
  fields.add(interval_fields(), [](const T& t) {
    return t.samples_ms.empty() ? std::nullopt : std::optional(TimedSamples(t.samples_ms));
  });
  fields.add(verdict_column(), [](const T&) { return Json(); });
  Table table = table_of("collectives", "Collectives of float32, alone", fields, times);
  add_verdicts_of_calls(times, table);
  const bool are_processes = !times.empty() && times[0].are_processes;
  table.notes.push_back(
      are_processes
          ? "ranks are processes; the time of a call is that between two results on the first rank"
          : "ranks are threads of this process; the time of a call begins when its last rank is "
            "there");
  return table;
}

}  // namespace tracestep
