#include "lab/profile/chrome_trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "analysis/origins.h"
#include "base/error.h"
#include "base/output_file.h"
#include "base/own_file.h"
#include "lab/profile/lanes.h"
#include "lab/profile/trace_events.h"
#include "lab/report/gzip.h"

namespace tracestep {
namespace {

constexpr std::int64_t kGpuSortIndex = 5'000'000;  // below every process in the viewer

class Writer : TraceEvents {
 public:
  Writer(const Profile& profile, const Json& environment)
      : p_(profile),
        environment_(environment),
        host_{getpid(), static_cast<std::int64_t>(syscall(SYS_gettid))} {
    place_lanes();
  }

  std::string run() {
    header();
    name_rows();
    const bool has_device =
        std::ranges::any_of(p_.launches, [](const ProfiledLaunch& l) { return l.activity >= 0; });
    steps();
    if (has_device) {
      calls();
      kernels();
    } else {
      host_kernels();
    }
    memory();
    out_ += fmt::format("\n],\n\"traceName\": {}}}\n", json_text(p_.program.name));
    return std::move(out_);
  }

 private:
  // Writes the metadata, which comes before the events, as readers that stream stop at those.
  void header() {
    out_ += "{\"schemaVersion\": 1,\n\"deviceProperties\": [" + device_properties() + "],\n";
    // Holistic Trace Analysis looks for the rank with a space after the colon.
    out_ += "\"distributedInfo\": {\"backend\": \"\", \"rank\": 0, \"world_size\": 1},\n";
    fmt::format_to(std::back_inserter(out_), "\"tool\": {},\n\"recordedBy\": {},\n",
                   json_text("tracestep " TRACESTEP_VERSION), json_text(p_.source));
    fmt::format_to(std::back_inserter(out_),
                   "\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": {},\n\"traceEvents\": [",
                   clock_.base_ns());
  }

  std::string device_properties() const {
    const Json* name = environment_.find("gpu");
    if (name == nullptr || !name->is_string()) return {};
    const auto number = [&](std::string_view key) {
      const Json* v = environment_.find(key);
      return v != nullptr && v->is_int() ? v->as_int() : 0;
    };
    int major = 0, minor = 0;
    if (const Json* v = environment_.find("gpu_compute_capability");
        v != nullptr && v->is_string()) {
      std::sscanf(v->as_string().c_str(), "%d.%d", &major, &minor);
    }
    return fmt::format(
        "{{\"id\": 0, \"name\": {}, \"totalGlobalMem\": {}, \"computeMajor\": {}, "
        "\"computeMinor\": {}, \"numSms\": {}, \"warpSize\": 32}}",
        json_text(name->as_string()), number("gpu_memory_bytes"), major, minor,
        number("gpu_multiprocessors"));
  }

  void name_rows() {
    meta("process_name", host_, "name", json_text("tracestep"));
    meta("process_labels", host_, "labels", json_text("CPU"));
    meta("process_sort_index", host_, "sort_index", std::to_string(host_.pid));
    meta("thread_name", host_, "name", json_text(fmt::format("thread {} (steps)", host_.tid)));
    std::map<std::pair<std::int64_t, std::int64_t>, int> tracks;
    for (const ProfiledLaunch& l : p_.launches) {
      if (l.activity >= 0) tracks[{track_of(l).pid, track_of(l).tid}] = lane_of(p_, l);
    }
    std::int64_t last = -1;
    for (const auto& [where, lane] : tracks) {
      const TracePlace place{where.first, where.second};
      if (where.first != last) {
        meta("process_name", place, "name", json_text("tracestep"));
        meta("process_labels", place, "labels", json_text(fmt::format("GPU {}", where.first)));
        meta("process_sort_index", place, "sort_index",
             std::to_string(kGpuSortIndex + where.first));
        last = where.first;
      }
      const std::string name = fmt::format("stream {}", where.second);
      meta("thread_name", place, "name",
           json_text(lane == 0 ? name : fmt::format("{}, lane {}", name, lane)));
    }
  }

  // Gives each lane's track the number of the first stream that its kernels ran on, or a new one if
  // that is taken: in a replayed graph lanes may share a stream, or take several.
  void place_lanes() {
    std::map<int, std::int64_t> first;
    std::int64_t next = 0;
    for (const ProfiledLaunch& l : p_.launches) {
      if (l.activity < 0) continue;
      next = std::max<std::int64_t>(next, activity(l).stream + std::int64_t{1});
      if (l.node >= 0) first.try_emplace(lane_of(p_, l), activity(l).stream);
    }
    for (const auto& [lane, stream] : first) {
      const bool is_taken = std::ranges::any_of(
          stream_of_lane_, [stream = stream](const auto& other) { return other.second == stream; });
      stream_of_lane_[lane] = is_taken ? next++ : stream;
    }
  }

  TracePlace track_of(const ProfiledLaunch& l) const {
    const Activity& a = activity(l);
    return {a.device, l.node < 0 ? a.stream : stream_of_lane_.at(lane_of(p_, l))};
  }

  const Activity& activity(const ProfiledLaunch& l) const {
    return p_.trace.activities[static_cast<std::size_t>(l.activity)];
  }

  // Returns the number that kernel and host op of one node in one step share.
  std::int64_t external_id(const ProfiledLaunch& l) const {
    return static_cast<std::int64_t>(l.step) * static_cast<std::int64_t>(p_.program.nodes.size()) +
           l.node + 1;
  }

  std::string step_name(std::size_t i) const { return fmt::format("ProfilerStep#{}", i + 1); }

  void steps() {
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      const ProfiledStep& s = p_.steps[i];
      complete("user_annotation", step_name(i), host_, {s.start_ns, s.end_ns}, "");
    }
  }

  // Writes the node's facts that a reader of the trace wants besides its times.
  std::string node_args(const ProfiledLaunch& l) const {
    const Node& node = p_.program.node(l.node);
    std::string dims, types;
    for (ValueId id : node.inputs) {
      const Type& t = p_.program.type(id);
      dims += (dims.empty() ? "" : ", ") + dims_of(t.shape);
      types += (types.empty() ? "" : ", ") + json_text(name_of(t.dtype));
    }
    return fmt::format(R"("External id": {}, "path": {}, "phase": "{}", "Input Dims": [{}], )"
                       R"("Input type": [{}])",
                       external_id(l), json_text(node.origin().path), name_of(node.origin().phase),
                       dims, types);
  }

  static std::string dims_of(const Shape& shape) {
    std::string out = "[";
    for (int i = 0; i < shape.rank(); ++i) {
      out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return out + "]";
  }

  // Writes a range around adjacent launches of one phase and, in it, around those of one component.
  void scopes(const char* category, TracePlace place,
              std::span<const ProfiledLaunch* const> launches) {
    const auto emit = [&](auto&& name_at, std::size_t from, std::size_t to_index) {
      complete(category, name_at(from), place,
               {launches[from]->start_ns, launches[to_index - 1]->end_ns}, "");
    };
    const auto phase_at = [&](std::size_t i) { return phase_name(*launches[i]); };
    const auto part_at = [&](std::size_t i) { return component_name(*launches[i]); };
    for (std::size_t i = 0; i < launches.size();) {
      std::size_t end = i;
      while (end < launches.size() && phase_at(end) == phase_at(i)) ++end;
      emit(phase_at, i, end);
      for (std::size_t j = i; j < end;) {
        std::size_t stop = j;
        while (stop < end && part_at(stop) == part_at(j)) ++stop;
        emit(part_at, j, stop);
        j = stop;
      }
      i = end;
    }
  }

  std::string phase_name(const ProfiledLaunch& l) const {
    return l.node < 0 ? "outside the program"
                      : std::string(name_of(p_.program.node(l.node).origin().phase));
  }
  std::string component_name(const ProfiledLaunch& l) const {
    return l.node < 0 ? "outside the program" : component_of(p_.program.node(l.node).origin().path);
  }

  // Calls `visit(step, first, last)` for each step, whose launches are [first, last).
  template <class Visit>
  void for_each_step(Visit&& visit) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      const std::size_t first = next;
      while (next < p_.launches.size() && p_.launches[next].step == static_cast<std::int32_t>(i)) {
        ++next;
      }
      visit(i, first, next);
    }
  }

  // Writes kernels that run inside the calls of the host as ops of the host's thread.
  void host_kernels() {
    for_each_step([&](std::size_t, std::size_t first, std::size_t last) {
      std::vector<const ProfiledLaunch*> all;
      for (std::size_t i = first; i < last; ++i) all.push_back(&p_.launches[i]);
      scopes("user_annotation", host_, all);
      for (std::size_t i = first; i < last; ++i) {
        const ProfiledLaunch& l = p_.launches[i];
        complete("cpu_op", p_.names[static_cast<std::size_t>(l.name)], host_,
                 {l.start_ns, l.end_ns}, node_args(l));
      }
    });
  }

  // Writes ops of the host, each around its calls of the driver, and the calls.
  void calls() {
    std::map<std::uint32_t, const ProfiledLaunch*> launch_of;
    for (const ProfiledLaunch& l : p_.launches) {
      if (l.activity >= 0) launch_of[activity(l).correlation] = &l;
    }
    std::map<std::int64_t, std::pair<TraceRange, const ProfiledLaunch*>> ops;  // by external id
    for (const ApiCall& call : p_.trace.calls) {
      const auto found = launch_of.find(call.correlation);
      if (found == launch_of.end() || found->second->node < 0) continue;
      if (activity(*found->second).graph_node != 0) continue;  // one call for all nodes
      const auto [op, is_new] =
          ops.try_emplace(external_id(*found->second),
                          std::pair(TraceRange{call.start_ns, call.end_ns}, found->second));
      op->second.first.end_ns = std::max(op->second.first.end_ns, call.end_ns);
    }
    for (const auto& [id, op] : ops) {
      const Node& node = p_.program.node(op.second->node);
      complete("cpu_op", node.op->name, host_, op.first, node_args(*op.second));
    }
    for (const ApiCall& call : p_.trace.calls) {
      const std::string& name = p_.trace.names[static_cast<std::size_t>(call.name)];
      if (!is_in_step(call.start_ns)) continue;
      complete(name.starts_with("cuda") ? "cuda_runtime" : "cuda_driver", name, host_,
               {call.start_ns, call.end_ns}, fmt::format("\"correlation\": {}", call.correlation));
      if (launch_of.contains(call.correlation)) flow('s', host_, call.start_ns, call.correlation);
    }
  }

  bool is_in_step(std::int64_t time_ns) const {
    return std::ranges::any_of(p_.steps, [&](const ProfiledStep& s) {
      return s.start_ns <= time_ns && time_ns <= s.end_ns;
    });
  }

  void kernels() {
    for_each_step([&](std::size_t step, std::size_t first, std::size_t last) {
      std::map<std::pair<int, std::int64_t>, std::vector<const ProfiledLaunch*>> tracks;
      for (std::size_t i = first; i < last; ++i) {
        const ProfiledLaunch& l = p_.launches[i];
        tracks[{lane_of(p_, l), track_of(l).tid}].push_back(&l);
        device_work(l);
      }
      bool is_first = true;
      for (const auto& [key, launches] : tracks) {
        const TracePlace place = track_of(*launches.front());
        if (std::exchange(is_first, false)) {
          complete("gpu_user_annotation", step_name(step), place,
                   {p_.steps[step].first_ns, p_.steps[step].last_ns}, "");
        }
        scopes("gpu_user_annotation", place, launches);
      }
    });
  }

  void device_work(const ProfiledLaunch& l) {
    const Activity& a = activity(l);
    const TracePlace place = track_of(l);
    std::string args = fmt::format(
        R"("External id": {}, "device": {}, "context": {}, "stream": {}, "correlation": {})",
        l.node < 0 ? 0 : external_id(l), a.device, a.context, place.tid, a.correlation);
    const char* category = "kernel";
    if (a.kind == ActivityKind::kKernel) {
      fmt::format_to(std::back_inserter(args),
                     R"(, "registers per thread": {}, "shared memory": {}, "grid": [{}, {}, {}], )"
                     R"("block": [{}, {}, {}])",
                     a.registers_per_thread, a.shared_bytes, a.grid[0], a.grid[1], a.grid[2],
                     a.block[0], a.block[1], a.block[2]);
    } else {
      category = a.kind == ActivityKind::kCopy ? "gpu_memcpy" : "gpu_memset";
      const std::int64_t ns = std::max<std::int64_t>(1, l.duration_ns());
      fmt::format_to(std::back_inserter(args),
                     R"x(, "bytes": {}, "memory bandwidth (GB/s)": {:.3f})x", a.bytes,
                     static_cast<double>(a.bytes) / static_cast<double>(ns));
    }
    if (l.node >= 0)
      args += fmt::format(R"(, "path": {})", json_text(p_.program.node(l.node).origin().path));
    complete(category, p_.names[static_cast<std::size_t>(l.name)], place, {l.start_ns, l.end_ns},
             args);
    flow('f', place, l.start_ns, a.correlation);
  }

  void memory() {
    for (const MemoryEvent& e : p_.memory_events) {
      if (e.action != MemoryAction::kAlloc && e.action != MemoryAction::kFree) continue;
      counter("requested bytes", host_, e.time_ns, e.live_requested_bytes);
    }
  }

  const Profile& p_;
  const Json& environment_;
  const TracePlace host_;
  std::map<int, std::int64_t> stream_of_lane_;
};

}  // namespace

std::string chrome_trace(const Profile& profile, const Json& environment) {
  return Writer(profile, environment).run();
}

void write_chrome_trace(const Profile& profile, const Json& environment,
                        const std::filesystem::path& path) {
  const std::string text = chrome_trace(profile, environment);
  write_file(path, path.extension() == ".gz" ? gzip(text, kTraceMark) : text);
}

}  // namespace tracestep
