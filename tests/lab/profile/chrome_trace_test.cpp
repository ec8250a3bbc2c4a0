#include "lab/profile/chrome_trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "lab/profile/profiles.h"
#include "lab/report/gzip.h"
#include "ops/functions.h"
#include "support/backends.h"

namespace tracestep {
namespace {

Json gpu_environment() {
  Json out = Json::object();
  out["gpu"] = "Model \"T\"";
  out["gpu_compute_capability"] = "9.0";
  out["gpu_memory_bytes"] = 1000;
  out["gpu_multiprocessors"] = 132;
  return out;
}

struct Event {
  const Json* json = nullptr;
  std::string name = {}, phase = {}, category = {};
  std::int64_t pid = 0, tid = 0;
  double start = 0, end = 0;  // microseconds
};

std::vector<Event> events_of(const Json& trace) {
  std::vector<Event> out;
  for (const Json& e : trace.at("traceEvents").items()) {
    Event event{.json = &e, .name = e.at("name").as_string(), .phase = e.at("ph").as_string()};
    if (const Json* c = e.find("cat")) event.category = c->as_string();
    event.pid = e.at("pid").as_int();
    event.tid = e.at("tid").as_int();
    event.start = e.at("ts").as_double();
    event.end = event.start + (event.phase == "X" ? e.at("dur").as_double() : 0.0);
    out.push_back(event);
  }
  return out;
}

std::vector<Event> of_category(const std::vector<Event>& events, std::string_view category) {
  std::vector<Event> out;
  for (const Event& e : events) {
    if (e.category == category) out.push_back(e);
  }
  return out;
}

// Complete events of one row lie inside each other or apart. A double holds these times to half a
// nanosecond.
void expect_nested(std::vector<Event> events) {
  std::erase_if(events, [](const Event& e) { return e.phase != "X"; });
  std::ranges::stable_sort(events, [](const Event& a, const Event& b) {
    return std::tuple(a.pid, a.tid, a.start, -a.end) < std::tuple(b.pid, b.tid, b.start, -b.end);
  });
  constexpr double kResolution = 0.0015;
  std::vector<Event> open;
  for (const Event& e : events) {
    while (!open.empty() && (open.back().pid != e.pid || open.back().tid != e.tid ||
                             open.back().end <= e.start + kResolution)) {
      open.pop_back();
    }
    if (!open.empty()) {
      EXPECT_LE(e.end, open.back().end + kResolution) << e.name << " in " << open.back().name;
    }
    open.push_back(e);
  }
}

TEST(ChromeTraceTest, LaunchesAndKernelsCorrelateAndNameTheirNode) {
  const Profile profile = testing::traced_profile();
  const std::string text = chrome_trace(profile, gpu_environment());
  const Json trace = Json::parse(text, "trace");
  const std::vector<Event> events = events_of(trace);
  std::map<std::int64_t, std::int64_t> op_of;  // external id of ops
  for (const Event& e : of_category(events, "cpu_op")) {
    op_of[e.json->at("args").at("External id").as_int()] += 1;
  }
  EXPECT_EQ(op_of.size(), 4u);  // two nodes in two steps
  std::set<std::int64_t> calls, starts, ends;
  for (const Event& e : of_category(events, "cuda_runtime")) {
    EXPECT_EQ(e.name, "cudaLaunchKernel");
    calls.insert(e.json->at("args").at("correlation").as_int());
  }
  for (const Event& e : of_category(events, "ac2g")) {
    (e.phase == "s" ? starts : ends).insert(e.json->at("id").as_int());
  }
  const std::vector<Event> kernels = of_category(events, "kernel");
  ASSERT_EQ(kernels.size(), 6u);
  for (const Event& e : kernels) {
    const Json& args = e.json->at("args");
    EXPECT_TRUE(calls.contains(args.at("correlation").as_int()));
    EXPECT_EQ(op_of[args.at("External id").as_int()], 1);
    EXPECT_EQ(args.at("stream").as_int(), e.tid);
    EXPECT_EQ(args.at("grid").items()[0].as_int(), 4);
  }
  EXPECT_EQ(starts, calls);
  EXPECT_EQ(ends, calls);
  expect_nested(events);
}

TEST(ChromeTraceTest, MetadataComesFirstAndNamesTheRankAsReadersExpect) {
  const std::string text = chrome_trace(testing::traced_profile(), gpu_environment());
  EXPECT_NE(text.find("\"rank\": 0"), std::string::npos);  // with the space
  EXPECT_LT(text.find("distributedInfo"), text.find("traceEvents"));
  EXPECT_LT(text.find("deviceProperties"), text.find("traceEvents"));
  const Json trace = Json::parse(text, "trace");
  const Json& device = trace.at("deviceProperties").items().at(0);
  EXPECT_EQ(device.at("name").as_string(), "Model \"T\"");
  EXPECT_EQ(device.at("computeMajor").as_int(), 9);
  // A quarter of a year begins at midnight.
  EXPECT_EQ(trace.at("baseTimeNanoseconds").as_int() % (86400LL * 1'000'000'000), 0);
}

TEST(ChromeTraceTest, StepsAreCountedAsReadersExpect) {
  const Json trace =
      Json::parse(chrome_trace(testing::traced_profile(), gpu_environment()), "trace");
  std::multiset<std::string> names;
  for (const Event& e : events_of(trace)) {
    if (e.name.starts_with("ProfilerStep#")) names.insert(e.category + " " + e.name);
  }
  EXPECT_EQ(names, (std::multiset<std::string>{
                       "gpu_user_annotation ProfilerStep#1", "gpu_user_annotation ProfilerStep#2",
                       "user_annotation ProfilerStep#1", "user_annotation ProfilerStep#2"}));
}

class ChromeTraceOfRunTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Devices, ChromeTraceOfRunTest,
                         ::testing::ValuesIn(testing::backend_names()));

TEST_P(ChromeTraceOfRunTest, AMeasuredTraceParsesAndNests) {
  ops::register_all();
  for (bool use_tracer : {true, false}) {
    ProfileSpec spec = testing::tiny_profile(Mode::kStep);
    spec.use_tracer = use_tracer;
    const Profile profile = profile_step(
        [](const RunSpec&) { return testing::backend_named(GetParam()).make({}); }, spec);
    const Json trace = Json::parse(chrome_trace(profile, gpu_environment()), "trace");
    const std::vector<Event> events = events_of(trace);
    expect_nested(events);
    const std::size_t ops =
        of_category(events, "cpu_op").size();  // on a GPU those that called the driver
    EXPECT_GT(ops, 0u);
    EXPECT_LE(ops, profile.launches.size());
    for (const Event& e : events) EXPECT_GE(e.start, 0.0);
  }
}

TEST(GzipTest, WhatIsCompressedComesBack) {
  std::string text = "a line\n";
  while (text.size() < 3'000'000) text += std::to_string(text.size() * 7919) + text.substr(0, 100);
  for (const std::string& t : {std::string(), std::string("x"), text}) {
    EXPECT_EQ(gunzip(gzip(t)), t);
  }
  EXPECT_LT(gzip(text).size(), text.size() / 2);
  EXPECT_THROW(gunzip(gzip(text).substr(0, 1000)), Error);
  EXPECT_THROW(gunzip("no gzip"), Error);
  EXPECT_EQ(gunzip(gzip(text), text.size()), text);
  EXPECT_THROW(gunzip(gzip(text), text.size() - 1), Error);
}

}  // namespace
}  // namespace tracestep
