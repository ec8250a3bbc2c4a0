// Traces of torch.profiler, written by hand: each event a line, times in microseconds.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tracestep::testing {

class TraceText {
 public:
  TraceText& range(std::string name, double start, double end, int thread = 1) {
    return host("user_annotation", name, start, end, thread, "");
  }
  TraceText& module(std::string name, double start, double end, int thread = 1) {
    return host("python_function", "nn.Module: " + name, start, end, thread, "");
  }
  TraceText& op(std::string name, double start, double end, int sequence = -1, int thread = 1) {
    return host(
        "cpu_op", name, start, end, thread,
        sequence < 0 ? "" : fmt::format(R"("Sequence number": {}, "Fwd thread id": 0)", sequence));
  }
  TraceText& gradient(std::string name, double start, double end, int sequence, int thread = 2) {
    return host("cpu_op", name, start, end, thread,
                fmt::format(R"("Sequence number": {}, "Fwd thread id": 1)", sequence));
  }
  TraceText& call(std::string name, double start, double end, int correlation, int thread = 1) {
    return host("cuda_runtime", name, start, end, thread,
                fmt::format(R"("correlation": {})", correlation));
  }
  TraceText& kernel(std::string name, double start, double end, int correlation, int stream = 7) {
    lines_.push_back(fmt::format(
        R"({{"ph": "X", "cat": "kernel", "name": "{}", "pid": 0, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {{"device": 0, "stream": {}, "correlation": {}}}}})",
        name, stream, start, end - start, stream, correlation));
    return *this;
  }
  // Adds a launch and its kernel.
  TraceText& launched(std::string name, double launch, double start, double end, int thread = 1,
                      int stream = 7) {
    call("cudaLaunchKernel", launch, launch + 1, ++correlation_, thread);
    return kernel(std::move(name), start, end, correlation_, stream);
  }
  TraceText& line(std::string text) {
    lines_.push_back(std::move(text));
    return *this;
  }
  TraceText& member(std::string text) {
    members_ += text + ", ";
    return *this;
  }

  std::string text() const {
    return fmt::format(R"({{"schemaVersion": 1, {}"traceEvents": [{}], "traceName": "x"}})",
                       members_, fmt::join(lines_, ",\n"));
  }

 private:
  TraceText& host(const char* category, const std::string& name, double start, double end,
                  int thread, const std::string& args) {
    lines_.push_back(fmt::format(
        R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 9, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {{{}}}}})",
        category, name, thread, start, end - start, args));
    return *this;
  }

  std::vector<std::string> lines_;
  std::string members_;
  int correlation_ = 1000;
};

}  // namespace tracestep::testing
