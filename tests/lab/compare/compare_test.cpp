#include "lab/compare/compare.h"

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/measure/sound_row.h"

namespace tracestep {
namespace {

using testing::around;
using testing::list;

// As six processes measured it that agree in every sample.
constexpr int kProcesses = 6;

Json row_of(const char* mode, std::vector<double> samples, const char* precision = "fp32") {
  Json row = Json::object();
  row["size"] = "tiny";
  row["context"] = 128;
  row["mode"] = mode;
  row["precision"] = precision;
  row["status"] = "ok";
  Json all = Json::array(), counts = Json::array();
  for (int i = 0; i < kProcesses && !samples.empty(); ++i) {
    for (double v : samples) all.push_back(v);
    counts.push_back(std::ssize(samples));
  }
  row["samples_ms"] = std::move(all);
  row["process_samples"] = std::move(counts);
  return row;
}

ResultFile file_of(std::vector<Json> rows, const char* commit = "one",
                   const char* samples = "samples_ms") {
  Json document = Json::object();
  document["schema"] = "tracestep.some/1";
  document["environment"] = Json::object();
  document["environment"]["commit"] = commit;
  document["environment"]["cpu"] = "some";
  document["environment"]["date_utc"] = commit;  // never worth a line
  document["columns"] = Json::Object{{samples, Json::object()}};
  document["rows"] = Json(Json::Array(std::move(rows)));
  return result_of(document, "file.json");
}

std::string verdict(const ComparisonReport& report, std::size_t row) {
  return report.rows.rows.at(row).at(1).as_string();
}

TEST(CompareTest, RowsMeetByWhatTheyMeasuredAndNotByPlace) {
  const auto report =
      compare_results(file_of({row_of("forward", around(10)), row_of("step", around(30))}),
                      file_of({row_of("step", around(60)), row_of("forward", around(10))}), {});
  ASSERT_EQ(report.rows.rows.size(), 2u);
  EXPECT_EQ(verdict(report, 0), "same");
  EXPECT_EQ(verdict(report, 1), "slower");
}

TEST(CompareTest, RowsWithoutAPartnerAreNamed) {
  const auto two = file_of({row_of("forward", around(10)), row_of("forward-backward", around(20))});
  const auto report = compare_results(two, file_of({row_of("step", around(30))}), {});
  ASSERT_EQ(report.rows.rows.size(), 3u);
  EXPECT_EQ(verdict(report, 0), "only in A");
  EXPECT_EQ(verdict(report, 1), "only in A");
  EXPECT_EQ(verdict(report, 2), "only in B");
}

TEST(CompareTest, IgnoredColumnsMayDiffer) {
  const auto a = file_of({row_of("step", around(10), "fp32")});
  const auto b = file_of({row_of("step", around(5), "bf16")});
  EXPECT_EQ(verdict(compare_results(a, b, {.fail_percent = 1.0}), 0), "only in A")
      << "a gate compares what is the same";
  const auto report = compare_results(a, b, {.ignored = {"precision"}});
  ASSERT_EQ(report.rows.rows.size(), 1u);
  EXPECT_EQ(verdict(report, 0), "faster");
  EXPECT_NE(report.rows.rows[0][0].as_string().find("fp32 → bf16"), std::string::npos);
  EXPECT_THROW(compare_results(a, b, {.ignored = {"precison"}}), Error);
  const auto both =
      file_of({row_of("step", around(10), "fp32"), row_of("step", around(5), "bf16")});
  EXPECT_THROW(compare_results(both, b, {.ignored = {"precision"}}), Error);
}

TEST(CompareTest, WhatAllOfTwoResultsDifferInIsWhatIsCompared) {
  const auto differs = [](const ComparisonReport& report) {
    const Json& cell = report.rows.rows[0][report.rows.index_of("differs").value()];
    return cell.is_null() ? std::string() : cell.as_string();
  };
  const auto single = file_of({row_of("forward", around(3)), row_of("step", around(10))});
  const auto half =
      file_of({row_of("forward", around(2), "bf16"), row_of("step", around(5), "bf16")});
  const auto report = compare_results(single, half, {});
  ASSERT_EQ(report.rows.rows.size(), 2u);
  EXPECT_EQ(verdict(report, 1), "faster");
  EXPECT_EQ(differs(report), "precision fp32 → bf16");
  EXPECT_EQ(differs(compare_results(single, single, {})), "");
  // A row that has its like is compared with that one.
  const auto both = file_of({row_of("step", around(10)), row_of("step", around(5), "bf16")});
  EXPECT_EQ(compare_results(single, both, {}).rows.rows.size(), 3u);
}

TEST(CompareTest, ExecutorsAreComparedUnlessAFileHasBoth) {
  const auto by = [](const char* executor, double ms) {
    Json row = row_of("step", around(ms));
    row["executor"] = executor;
    return row;
  };
  const auto eager = file_of({by("eager", 10)}), compiled = file_of({by("compiled", 5)});
  const auto report = compare_results(eager, compiled, {});
  ASSERT_EQ(report.rows.rows.size(), 1u);
  EXPECT_EQ(verdict(report, 0), "faster");
  EXPECT_NE(report.rows.rows[0][0].as_string().find("eager → compiled"), std::string::npos);
  const auto both = file_of({by("eager", 10), by("compiled", 5)});
  const auto apart = compare_results(both, both, {});
  ASSERT_EQ(apart.rows.rows.size(), 2u);
  EXPECT_EQ(verdict(apart, 0), "same");
  EXPECT_EQ(verdict(apart, 1), "same");
}

TEST(CompareTest, AResultOlderThanAFieldHasItsDefault) {
  Json now = row_of("step", around(10));
  now["attention"] = "naive";
  const auto before = file_of({row_of("step", around(10))});
  EXPECT_EQ(verdict(compare_results(before, file_of({now}), {}), 0), "same");
  now["attention"] = "flash";
  EXPECT_EQ(verdict(compare_results(before, file_of({now}), {.fail_percent = 1.0}), 0),
            "only in A");
}

TEST(CompareTest, TheEnvironmentShowsOnlyWhatDiffers) {
  const auto same = compare_results(file_of({}), file_of({}), {});
  EXPECT_TRUE(same.environment.rows.empty());
  const auto other = compare_results(file_of({}, "one"), file_of({}, "two"), {});
  ASSERT_EQ(other.environment.rows.size(), 1u);
  EXPECT_EQ(other.environment.rows[0][0].as_string(), "commit");
}

TEST(CompareTest, ARegressionIsSlowerBeyondNoiseAndBeyondThePercentage) {
  const auto a = file_of({row_of("step", around(100))});
  const auto regressions = [&](Json row, double percent) {
    return compare_results(a, file_of({std::move(row)}), {.fail_percent = percent})
        .regressions.size();
  };
  EXPECT_EQ(regressions(row_of("step", around(110)), 5), 1u);
  EXPECT_EQ(regressions(row_of("step", around(110)), 15), 0u);
  EXPECT_EQ(regressions(row_of("step", around(90)), 0), 0u);
  Json gone = row_of("step", {});
  gone["status"] = "oom";
  EXPECT_EQ(regressions(gone, 5), 1u);
}

// Its wait is missing: the wall clock says less than the device.
Json invalid_row(double ms) {
  Json late = row_of("step", around(ms));
  late["wall_ms"] = ms;
  late["device_span_ms"] = 8 * ms;
  late["tflops"] = 1.0;
  late["warmup_ms"] = list({1.0});
  return late;
}

TEST(CompareTest, AnInvalidRowIsNotCompared) {
  const Json late = invalid_row(50);
  const auto report = compare_results(file_of({row_of("step", around(100))}), file_of({late}),
                                      {.fail_percent = 0.0});
  EXPECT_EQ(verdict(report, 0), "invalid");
  const Json& objections = report.rows.rows[0][report.rows.index_of("objections").value()];
  EXPECT_NE(objections.as_string().find("missing_synchronization"), std::string::npos);
}

TEST(CompareTest, WhatTheGateCannotJudgeIsNamedAndDoesNotPass) {
  const auto with = [](Json row, const char* column, Json value) {
    row[column] = std::move(value);
    return row;
  };
  const Json good = row_of("step", around(100));
  // Processes that differ by more than the two sides.
  const auto apart = [&](double ms) {
    Json row = row_of("step", around(ms)), all = Json::array();
    for (double process : around(ms, 0.5)) all.push_back(process);
    row["process_samples"] = Json::Array{1, 1, 1, 1, 1, 1, 1, 1, 1};
    row["samples_ms"] = std::move(all);
    return row;
  };
  struct {
    std::vector<Json> a, b;
    const char* why;
  } const cases[] = {
      {{good}, {}, "tiny context 128 step fp32: only in A"},
      {{good}, {row_of("forward", around(100))}, "only in A"},
      {{}, {good}, "nothing was compared in both files"},
      {{}, {}, "nothing was compared in both files"},
      {{good}, {row_of("step", {})}, "no samples in B"},
      {{row_of("step", {})}, {good}, "no samples in A"},
      {{good}, {with(good, "samples_ms", Json::Array{100.0, Json()})}, "no positive numbers"},
      {{with(good, "samples_ms", Json())}, {good}, "no samples in A"},
      {{with(good, "samples_ms", "x")}, {good}, "no samples in A"},
      {{with(good, "samples_ms", Json::Array{Json(), Json()})}, {good}, "no samples in A"},
      {{with(good, "samples_ms", Json::Array{100.0, 0.0})}, {good}, "no positive numbers"},
      {{good}, {with(good, "samples_ms", "many")}, "no samples in B"},
      {{good}, {invalid_row(300)}, "B invalid: missing_synchronization"},
      {{invalid_row(300)}, {good}, "A invalid: missing_synchronization"},
      {{with(good, "process_samples", Json())},
       {with(good, "process_samples", Json())},
       "unclear, too few processes"},
      {{good}, {with(good, "process_samples", Json::Array{1, 2})}, "not those of its processes"},
      {{apart(100)}, {apart(108)}, "unclear, "},
      {{good}, {row_of("step", around(-100))}, "no positive numbers"},
      {{good}, {with(good, "status", Json())}, "status ok → none"},
      {{with(good, "status", "odd")}, {good}, "status odd → ok"},
      {{with(good, "status", "oom")}, {with(good, "status", "oom")}, "nothing was compared"},
  };
  for (const auto& c : cases) {
    const auto report = compare_results(file_of(c.a), file_of(c.b), {.fail_percent = 5.0});
    EXPECT_TRUE(report.regressions.empty()) << c.why;
    ASSERT_EQ(report.undecided.size(), 1u) << c.why;
    EXPECT_NE(report.undecided[0].find(c.why), std::string::npos) << report.undecided[0];
    // Without the gate nothing is judged.
    EXPECT_TRUE(compare_results(file_of(c.a), file_of(c.b), {}).undecided.empty()) << c.why;
  }
}

TEST(CompareTest, TheMarginDoesNotHideWhatTheGateAsksFor) {
  const auto gate = [](double b_ms, double spread, double margin) {
    return compare_results(file_of({row_of("step", around(100, spread))}),
                           file_of({row_of("step", around(b_ms, spread))}),
                           {.margin = margin, .fail_percent = 1.0});
  };
  // Certain, and within what the table calls the same.
  for (double margin : {0.02, 0.5}) {
    const auto slower = gate(101.8, 0.0001, margin);
    EXPECT_EQ(verdict(slower, 0), "same");
    EXPECT_EQ(slower.regressions.size(), 1u);
    EXPECT_TRUE(slower.undecided.empty());
  }
  // The times are the same within a wide margin, and may differ by more than the limit.
  const auto unknown = gate(100, 0.2, 0.5);
  EXPECT_EQ(verdict(unknown, 0), "same");
  EXPECT_TRUE(unknown.regressions.empty());
  ASSERT_EQ(unknown.undecided.size(), 1u);
  EXPECT_NE(unknown.undecided[0].find("same, "), std::string::npos) << unknown.undecided[0];
  EXPECT_TRUE(gate(100.1, 0.001, 0.5).undecided.empty());
}

TEST(CompareTest, DamagedSamplesOfAPartDoNotHideIt) {
  const auto attention = [](Json backward) {
    Json row = Json::object();
    row["context"] = 128;
    row["status"] = "ok";
    for (const char* part : {"forward", "backward"}) {
      const std::string name = part;
      row[name + "_samples_ms"] = row_of("step", around(100)).at("samples_ms");
      row[name + "_process_samples"] = row_of("step", around(100)).at("process_samples");
    }
    if (!(backward == Json("as it is"))) row["backward_samples_ms"] = std::move(backward);
    return file_of({row}, "one", "tracestep.attention/1");
  };
  const auto undecided = [&](Json a, Json b) {
    return compare_results(attention(std::move(a)), attention(std::move(b)), {.fail_percent = 5.0})
        .undecided.size();
  };
  const Json times = "as it is";
  for (const Json& damaged : {Json(), Json("x"), Json::array(), Json(Json::Array{Json()})}) {
    EXPECT_EQ(undecided(damaged, times), 1u) << damaged.dump();
    EXPECT_EQ(undecided(times, damaged), 1u) << damaged.dump();
  }
  // Measured in neither.
  EXPECT_EQ(undecided(Json(), Json::array()), 0u);
}

TEST(CompareTest, WhatOnlyShowsBesideOtherRowsIsAnObjectionToo) {
  const auto grid = [](double step_ms) {
    const auto row = [](const char* mode, double ms, double flops) {
      Json out = row_of(mode, around(ms));
      out["flops"] = flops;
      out["median_ms"] = ms;
      out["tflops"] = flops / ms * 1e-9;
      return out;
    };
    return file_of({row("forward", 100, 1e9), row("step", step_ms, 3e9)});
  };
  // A step in half the time of its forward pass: one of the two is wrong.
  const auto report = compare_results(grid(300), grid(50), {.fail_percent = 5.0});
  EXPECT_EQ(verdict(report, 0), "invalid");
  EXPECT_EQ(verdict(report, 1), "invalid");
  ASSERT_EQ(report.undecided.size(), 2u);
  EXPECT_NE(report.undecided[0].find("B invalid: part_over_whole"), std::string::npos);
}

TEST(CompareTest, TheGatePassesWhatItHasSeenToBeRight) {
  Json gone = row_of("forward", {});
  gone["status"] = "oom";
  struct {
    std::vector<Json> a, b;
  } const cases[] = {
      {{row_of("step", around(100))}, {row_of("step", around(100.1))}},
      {{row_of("step", around(100))}, {row_of("step", around(80))}},
      // Rows that only B has, and rows that never ran.
      {{row_of("step", around(100)), gone}, {row_of("step", around(100)), gone}},
      {{row_of("step", around(100))}, {row_of("step", around(100)), row_of("forward", {})}},
      {{row_of("step", around(100)), gone},
       {row_of("step", around(100)), row_of("forward", around(100))}},
      // Too wide to be the same, but no part of the interval is beyond the limit.
      {{row_of("step", around(100, 0.5))}, {row_of("step", around(98, 0.5))}},
  };
  for (const auto& c : cases) {
    const auto report = compare_results(file_of(c.a), file_of(c.b), {.fail_percent = 20.0});
    EXPECT_TRUE(report.regressions.empty());
    EXPECT_TRUE(report.undecided.empty()) << report.undecided[0];
  }
}

TEST(CompareTest, ARegressionIsOneWhateverElseCannotBeJudged) {
  const auto report =
      compare_results(file_of({row_of("step", around(100)), row_of("forward", around(10))}),
                      file_of({row_of("step", around(150))}), {.fail_percent = 5.0});
  EXPECT_EQ(report.regressions.size(), 1u);
  EXPECT_EQ(report.undecided.size(), 1u);
}

TEST(CompareTest, FilesWithNoTableInCommonAreRefused) {
  EXPECT_THROW(compare_results(file_of({}), file_of({}, "one", "forward_samples_ms"), {}), Error);
}

TEST(CompareTest, OneProcessOnEachSideIsUnclearUnlessTheirNoiseIsKnown) {
  const auto alone = [](double ms) {
    Json row = row_of("step", around(ms, 0.001));
    row["process_samples"] = Json();
    return file_of({row});
  };
  EXPECT_EQ(verdict(compare_results(alone(100), alone(200), {}), 0), "unclear");
  EXPECT_EQ(verdict(compare_results(alone(100), alone(100), {}), 0), "unclear");
  const auto with = [&](double ms, double noise) {
    return verdict(compare_results(alone(100), alone(ms), {.noise_percent = noise}), 0);
  };
  EXPECT_EQ(with(110, 1), "slower");
  EXPECT_EQ(with(110, 10), "unclear");
  EXPECT_EQ(with(90, 1), "faster");
  EXPECT_EQ(with(100.1, 0.1), "same");
  // Another row of the same files shows it.
  Json known = row_of("forward", {});
  known["samples_ms"] = Json::Array{99.0, 99.5, 100.0, 100.5, 101.0, 100.2, 99.8};
  known["process_samples"] = Json::Array{1, 1, 1, 1, 1, 1, 1};
  const auto beside = [&](double ms) {
    Json row = row_of("step", around(ms, 0.001));
    row["process_samples"] = Json();
    return file_of({row, known});
  };
  EXPECT_EQ(verdict(compare_results(beside(100), beside(110), {}), 0), "slower");
  EXPECT_EQ(verdict(compare_results(beside(100), beside(102), {}), 0), "unclear");
}

TEST(CompareTest, WhatWasDifferentOnTheMachineIsSaid) {
  const auto under = [](double load, double others, double mhz, const char* governor) {
    Json row = row_of("step", around(100)), host = Json::object();
    host["load_1min"] = load;
    host["governor"] = governor;
    host["clock_high_mhz"] = mhz;
    row["host_before"] = host;
    row["host_after"] = host;
    row["others_cores"] = others;
    return file_of({row});
  };
  const auto conditions = [](const ResultFile& a, const ResultFile& b) {
    const ComparisonReport report = compare_results(a, b, {});
    const auto column = std::ranges::find(report.rows.columns, "conditions", &Column::name);
    return report.rows.rows[0][static_cast<std::size_t>(column - report.rows.columns.begin())];
  };
  const ResultFile quiet = under(0.2, 0.01, 3000, "performance");
  EXPECT_TRUE(conditions(quiet, under(0.6, 0.05, 2990, "performance")).is_null());
  EXPECT_EQ(conditions(quiet, under(3.2, 1.2, 2400, "powersave")).as_string(),
            "load 0.2 and 3.2; other work on 0.01 and 1.20 cores; clocks up to 3000 and 2400 MHz; "
            "governor performance and powersave");
  EXPECT_TRUE(conditions(quiet, file_of({row_of("step", around(100))})).is_null());
}

// A row of so many processes, three samples each.
Json row_of_processes(const std::vector<double>& centers) {
  Json row = row_of("step", {});
  Json samples = Json::array(), counts = Json::array();
  for (double ms : centers) {
    for (double factor : {0.999, 1.0, 1.001}) samples.push_back(ms * factor);
    counts.push_back(3);
  }
  row["samples_ms"] = std::move(samples);
  row["process_samples"] = std::move(counts);
  return row;
}

TEST(CompareTest, PairsShowWhatAMachineThatDriftsHidesFromProcesses) {
  std::vector<double> a, b;
  for (int i = 0; i < 24; ++i) {
    a.push_back(10 + i / 2);  // two processes of one run have met the same machine
    b.push_back(1.03 * a.back());
  }
  const ResultFile left = file_of({row_of_processes(a)}), right = file_of({row_of_processes(b)});
  EXPECT_EQ(verdict(compare_results(left, right, {}), 0), "unclear");
  // 24 processes a side as 24 pairs, or as two in each of twelve runs.
  for (int pairs : {24, 12}) {
    const ComparisonReport report = compare_results(left, right, {.pairs = pairs});
    EXPECT_EQ(verdict(report, 0), "slower") << pairs;
    EXPECT_NE(report.rows.notes.at(1).find(fmt::format("1 row was compared in {} pairs", pairs)),
              std::string::npos);
  }
  // Too few pairs, or processes that are not shared out evenly, are compared as before.
  for (int pairs : {8, 13}) {
    EXPECT_EQ(verdict(compare_results(left, right, {.pairs = pairs}), 0), "unclear") << pairs;
  }
}

}  // namespace
}  // namespace tracestep
