// The first sentence of every result, in every outcome: from tables alone.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "lab/pages/first_answer.h"
#include "support/paths.h"

namespace tracestep::pages {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ColumnKind kind_of(const Json& cell) {
  if (cell.is_string()) return ColumnKind::kText;
  if (cell.is_bool()) return ColumnKind::kBool;
  if (cell.is_array()) return ColumnKind::kReals;
  return cell.is_int() ? ColumnKind::kInt : ColumnKind::kReal;
}

// {"bench": [{"mode": "step"}, …]}: all rows of a table with the columns of the first one that has
// each.
std::vector<Table> tables_of(const std::string& text) {
  std::vector<Table> out;
  const Json json = Json::parse(text, "tables");
  for (const auto& [name, rows] : json.members()) {
    Table table{.name = name};
    for (const Json& row : rows.items()) {
      for (const auto& [column, cell] : row.members()) {
        if (!table.index_of(column))
          table.columns.push_back({.name = column, .kind = kind_of(cell)});
      }
    }
    for (const Json& row : rows.items()) {
      std::vector<Json> cells;
      for (const Column& column : table.columns) {
        const Json* cell = row.find(column.name);
        cells.push_back(cell == nullptr ? Json() : *cell);
      }
      table.rows.push_back(std::move(cells));
    }
    out.push_back(std::move(table));
  }
  return out;
}

struct Case {
  const char* schema;
  std::string tables;
  const char* sentence;
};

std::optional<FirstAnswer> answered(const Case& c) {
  std::vector<Table> tables = tables_of(c.tables);
  const Json machine = Json::Object{{"cores", 2}, {"device_memory_limit_bytes", 2147483648}};
  return first_answer("tracestep." + std::string(c.schema) + "/1", tables, machine);
}

// A row of `bench`; `more` replaces and adds.
std::string bench(const std::string& ms, const std::string& more) {
  return R"({"size":"tiny","context":16,"batch":4,"mode":"step","precision":"fp32","ops":"fused",)"
         R"("attention":"naive","executor":"eager","parallel":"none","status":"ok","flops":100,)"
         R"("peak_bytes":1048576,"predicted_peak_bytes":1048576,"others_cores":0.0,"mean_ms":)" +
         ms + R"(,"std_ms":1.0,"median_ms":)" + ms + R"(,"samples_ms":[)" + ms + "," + ms + "," +
         ms + "," + ms + "," + ms + "," + ms + R"(],"tokens_per_s":1207.2)" + more + "}";
}
std::string changed(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}
std::string one_bench(const std::string& more = "") {
  return R"({"bench":[)" + bench("212.0", more) + "]}";
}
const std::string kBusy = R"("others_cores":0.0)", kBusier = R"("others_cores":1.3)";

std::string passes(const std::string& both) {
  const std::string forward = changed(bench("50.0", ""), "\"step\"", "\"forward\"");
  return R"({"bench":[)" + forward + "," +
         changed(bench(both, ""), "\"step\"", "\"forward-backward\"") + "," + bench("190.0", "") +
         "]}";
}
// Batches 2, 4 and 8 of tiny with these tokens/s, and one that does not fit.
std::string throughput(const std::string& two, const std::string& four, const std::string& eight,
                       bool has_out = false) {
  std::string out = R"({"throughput":[)";
  const std::string* const all[] = {&two, &four, &eight};
  for (int i = 0, batch = 2; i < 3; ++i, batch *= 2) {
    out +=
        (i > 0 ? "," : "") +
        fmt::format(R"({{"size":"tiny","context":16,"mode":"step","precision":"fp32","batch":{},)"
                    R"("status":"ok","tokens_per_s":{},)"
                    R"("peak_bytes":{},"others_cores":1.3,"predicted_peak_bytes":{}}})",
                    batch, *all[i], 1024 * batch, 1024 * batch);
  }
  if (has_out) {
    out +=
        R"(,{"size":"tiny","context":16,"batch":16,"status":"oom","predicted_peak_bytes":16384})";
  }
  return out + "]}";
}
std::string precisions(const std::string& low) {
  return R"({"bench":[)" + bench("100.0", "") + "," +
         changed(bench(low, ""), "\"fp32\"", "\"bf16\"") + "]}";
}

std::string warmup(const std::string& first, int unsettled) {
  const std::string common =
      R"("size":"tiny","mode":"step","status":"ok","mean_ms":12.0,"std_ms":1.0,)";
  return R"({"warmup":[{)" + common + R"("warmup":0,"median_ms":10.0,"first_ms":)" + first +
         R"(,"unsettled":)" + std::to_string(unsettled) + R"(},{)" + common +
         R"("warmup":2,"median_ms":10.0,"first_ms":10.0,"unsettled":0}]})";
}

std::string attention(const std::string& flash, const std::string& more = "") {
  const auto row = [](const std::string& form, const std::string& ms) {
    return R"({"attention":")" + form +
           R"(","context":128,"width":64,"precision":"fp32","causal":true,"status":"ok",)"
           R"("forward_median_ms":2.0,"forward_mean_ms":2.0,"forward_std_ms":0.1,)"
           R"("backward_median_ms":4.0,"backward_mean_ms":4.0,"backward_std_ms":0.2,)"
           R"("before_backward_bytes":1024,"peak_bytes":2048,"predicted_peak_bytes":2048,)"
           R"("others_cores":0.0,"whole_median_ms":)" +
           ms + R"(,"whole_samples_ms":[)" + ms + "," + ms + "," + ms + "," + ms + "," + ms + "," +
           ms + "]}";
  };
  return R"({"attention":[)" + row("naive", "6.0") +
         (flash.empty() ? "" : "," + row("flash", flash)) + more + "]}";
}

std::string samples(const std::string& ms, int count = 6) {
  std::string out = "[" + ms;
  for (int i = 1; i < count; ++i) out += "," + ms;
  return out + "]";
}
std::string steps(const std::string& low, const std::string& peak, int count = 6) {
  const auto row = [&](const std::string& precision, const std::string& ms,
                       const std::string& bytes) {
    return R"({"size":"tiny","context":16,"mode":"step","status":"ok","precision":")" + precision +
           R"(","median_ms":)" + ms + R"(,"samples_ms":)" + samples(ms, count) +
           R"(,"peak_bytes":)" + bytes + R"(,"gradient_error":0.002})";
  };
  return R"({"steps":[)" + row("fp32", "10.0", "1048576") + "," + row("bf16", low, peak) + "]}";
}
std::string ways(const std::string& compiled, const std::string& peak, int count = 6) {
  const auto row = [&](const std::string& executor, const std::string& ms,
                       const std::string& bytes) {
    return R"({"size":"tiny","context":16,"mode":"step","ops":"fused","status":"ok","executor":")" +
           executor + R"(","median_ms":)" + ms + R"(,"samples_ms":)" + samples(ms, count) +
           R"(,"peak_bytes":)" + bytes + "}";
  };
  return R"({"ways":[)" + row("eager", "10.0", "1048576") + "," + row("compiled", compiled, peak) +
         "]}";
}
std::string ladder(const std::string& top) {
  return R"({"ladder":[{"rung":"naive","status":"ok","median_ms":10.0,"samples_ms":)" +
         samples("10.0") + R"(},{"rung":"bf16","status":"ok","rung_speedup":2.0,"median_ms":)" +
         top + R"(,"samples_ms":)" + samples(top) + "}]}";
}
std::string attention_ways(const std::string& compiled) {
  const auto row = [&](const std::string& executor, const std::string& ms) {
    return R"({"context":64,"width":16,"precision":"fp32","executor":")" + executor +
           R"(","status":"ok","whole_median_ms":)" + ms + R"(,"whole_samples_ms":)" + samples(ms) +
           "}";
  };
  return R"({"attention_ways":[)" + row("eager", "3.0") + "," + row("compiled", compiled) + "]}";
}

std::string memory(const std::string& peak, const std::string& more = "",
                   const std::string& rows = "") {
  return R"({"memory":[{"size":"tiny","context":16,"mode":"step","precision":"fp32",)"
         R"("label":"tiny context 16 step fp32","status":"ok","predicted_peak_bytes":)" +
         peak + R"(,"peak_bytes":)" + peak + more + "}" + rows + "]";
}
const std::string kCategories =
    R"(,"categories":[{"category":"activation","predicted_bytes":512,"measured_bytes":512,)"
    R"("share_percent":50.0},{"category":"total","predicted_bytes":1024,"measured_bytes":1024,)"
    R"("share_percent":100.0}]})";
const std::string kRemedies = R"(,"remedies":[{"flags":"--batch 1","peak_bytes":1073741824}]})";
std::string recompute(const std::string& least) {
  return changed(memory("4096", R"(,"recompute":"none","saved_bytes":2048)",
                        R"(,{"size":"tiny","context":16,"status":"ok","recompute":"blocks",)"
                        R"("saved_bytes":1024,"peak_bytes":)" +
                            least + "}"),
                 "]", "]}");
}
std::string memory_in(const std::string& low) {
  return memory("4096", "",
                R"(,{"size":"tiny","context":16,"mode":"step","precision":"bf16","status":"ok",)"
                R"("peak_bytes":)" +
                    low + "}") +
         "}";
}

std::string fit(const std::string& peak, const std::string& more) {
  return R"({"fit":[{"batch":4,"context":512,"precision":"fp32","status":")" +
         std::string(more.empty() ? "ok" : "oom") + R"(","peak_bytes":)" + peak +
         R"(,"limit_bytes":2147483648,"spare_bytes":1073741824,"missing_bytes":1073741824}])" +
         more + "}";
}
// What fits, as it is asked for.
std::string tight_fit() {
  return R"({"fit":[{"batch":4,"context":512,"precision":"fp32","status":"tight","peak_bytes":1073741824,"limit_bytes":1074790400,)"
         R"("spare_bytes":1048576}])" +
         kRemedies;
}
std::string plan(const std::string& more) {
  return R"({"plan":[{"batch":4,"context":512,"precision":"fp32","devices":8,"device":"H100 SXM",)"
         R"("peak_bytes":1073741824,)" +
         more + "}]}";
}
const std::string kDays =
    R"("tokens_per_s":84750.4,"mfu_percent":43.0,"tokens":"1.00 T","days":136.6,)"
    R"("device_hours":26225.0,"cost":52450.0)";
const std::string kTwoRemedies =
    R"(,"remedies":[{"flags":"--offload optimizer","peak_bytes":1024,"time_per_token":5.0},)"
    R"({"flags":"--moments bf16","peak_bytes":1024,"time_per_token":1.1}])";
// The least peaks: of the task, and 1 GiB of one sequence.
std::string least(const std::string& peak) {
  return R"(,"least":[{"task":"as asked for","batch":8,"context":64,"precision":"bf16",)"
         R"("flags":"--updates early","kept_bytes":536870912,"peak_bytes":)" +
         peak + R"(},{"task":"one sequence","kept_bytes":268435456,"peak_bytes":1073741824}])";
}
std::string compare(const std::string& rows) {
  return R"({"compare":[)" + rows + "]}";
}
// How many ranks pay, of one kind of scaling.
std::string bounds(const std::string& kind) {
  std::string rows;
  for (const auto& [form, half] : {std::pair("data parallel", 70), std::pair("fully sharded", 56),
                                   std::pair("sharded × tensor", 232)}) {
    rows += fmt::format(R"({}{{"kind":"{}","form":"{}","half_until":{}}})", rows.empty() ? "" : ",",
                        kind, form, half);
  }
  return R"({"bounds":[)" + rows + "]}";
}

std::string explain_rows(const std::string& rows) {
  return R"({"explain":[)" + rows + "]}";
}
std::string share(const std::string& value) {
  return explain_rows(R"({"what":"share in which kernels work","shown":"x","value":)" + value +
                      R"(},{"what":"the host's part of each","shown":"2.000 µs","value":0.002})");
}

std::vector<Case> cases() {
  const std::string beside =
      R"({"bench":[],"beside":[{"change":"executor compiled","against":"executor eager","rounds":9,)"
      R"("ratio":0.85,"low":0.83,"high":0.87,"is":"faster"}]})";
  return {
      {"bench", one_bench(),
       "One step of tiny takes 212.0 ± 1.0 ms and 1.00 MiB at its peak; 1208 tokens/s."},
      {"bench", changed(one_bench(), kBusy, kBusier),
       "Noisy: other programs used 1.3 of your 2 cores."},
      {"bench", changed(one_bench(), R"("std_ms":1.0,)", ""),
       "One step of tiny takes 212.0 ms and 1.00 MiB"},
      {"bench", R"({"bench":[)" + bench("5.0", "") + "," + bench("9.0", "") + "]}",
       "Of 2 cells the shortest takes 5.000 ms (tiny, context 16, step, fp32), the longest 9.000 "
       "ms"},
      {"bench", beside,
       "executor compiled takes 0.850 times as long as executor eager (0.830 to 0.870, 9 rounds): "
       "faster."},
      {"bench", changed(beside, R"("rounds":9)", R"("rounds":3)"),
       "executor compiled takes 0.850 times as long as executor eager in 3 rounds, too few for a "
       "verdict"},
      {"bench", passes("150.0"),
       "In tiny, forward takes 50.0 ± 1.0 ms, forward and backward 150.0 ± 1.0 ms, a whole step "
       "190.0 ± "
       "1.0 ms, so backward takes 2.00 times forward (medians)."},
      {"bench", passes("50.0"), ", and noise hides how long backward takes."},
      {"bench", changed(passes("150.0"), kBusy, kBusier),
       "Noisy: other programs used 1.3 of your 2 cores."},
      {"bench",
       changed(one_bench(R"(,"communication_ms":20.0,"exposed_ms":8.0)"), "\"none\"", "\"dp=2\""),
       "Split as dp=2, one step of tiny takes 212.0 ± 1.0 ms; collectives run for 20.00 ms; with "
       "waits for other ranks they add 8.000 ms."},
      {"bench", changed(one_bench(), "\"none\"", "\"dp=2\""),
       "Split as dp=2, one step of tiny takes 212.0 ± 1.0 ms."},
      {"bench", changed(changed(one_bench(), "\"none\"", "\"dp=2\""), R"("std_ms":1.0,)", ""),
       "Split as dp=2, one step of tiny takes 212.0 ms; so few samples have no spread."},
      {"bench",
       changed(changed(changed(one_bench(), "\"none\"", "\"dp=2\""), R"("std_ms":1.0,)", ""),
               R"("median_ms":212.0,)", ""),
       "Split as dp=2, one step of tiny holds 1.00 MiB at its peak."},
      {"bench", changed(passes("150.0"), R"("std_ms":1.0,)", ""),
       "In tiny, forward takes 50.00 ms, forward and backward 150.0 ms, a whole step 190.0 ms; so "
       "few samples have no spread."},
      {"bench", changed(precisions("50.0"), R"("std_ms":1.0,)", ""),
       "takes 50.00 ms in bf16 and 100.0 ms in fp32; so few samples have no spread."},
      {"bench",
       changed(changed(one_bench(), R"("std_ms":1.0,)", ""),
               "[212.0,212.0,212.0,212.0,212.0,212.0]", "[212.0]"),
       "One step of tiny takes 212.0 ms and 1.00 MiB at its peak. One sample has no spread."},
      {"bench", changed(changed(one_bench(), "\"none\"", "\"dp=2\""), kBusy, kBusier),
       "Noisy: other programs used 1.3"},
      {"bench", precisions("50.0"),
       "takes 50.0 ± 1.0 ms in bf16 and 100.0 ± 1.0 ms in fp32: 2.00 times as fast."},
      {"bench", precisions("100.0"),
       "in bf16 and 100.0 ± 1.0 ms in fp32: no difference beyond noise."},
      {"bench", precisions("160.0"), "in bf16 and 100.0 ± 1.0 ms in fp32: 1.60 times as long."},
      {"bench", changed(precisions("50.0"), kBusy, kBusier),
       "Noisy: other programs used 1.3 of your 2 cores."},
      {"bench",
       R"({"bench":[{"size":"tiny","mode":"step","status":"ok","median_ms":0.02,"peak_bytes":1024}]})",
       "One step of tiny holds 1.00 KiB at its peak; this device computes nothing, so it has no "
       "time."},
      {"bench",
       R"({"bench":[{"size":"xl","mode":"step","context":512,"status":"oom","predicted_peak_bytes":1024}]})",
       "Out of memory: one step of xl at context 512 needs 1.00 KiB."},
      {"warmup", warmup("8.0", 0),
       "and 12.0 ± 1.0 ms with 2: the first one is not the long one here. No process starts"},
      {"warmup", changed(warmup("10.0", 1), R"("std_ms":1.0)", R"("std_ms":0.1)"),
       "Warm-up hardly shows here: steps take 12.00 ± 0.10 ms without warm-up steps and 12.00 ± "
       "0.10 "
       "ms with 2. At most 1 steps at the start of a process are slow; as many warm-up "
       "steps leave them out."},
      {"warmup", warmup("10.0", 0),
       "Noise hides what a start costs: steps take 12.0 ± 1.0 ms without warm-up steps"},
      {"warmup", warmup("30.0", 1), "the first timed one takes 3.00 times as long as the others."},
      {"warmup", changed(warmup("30.0", 1), R"("std_ms":1.0,)", ""),
       "The first timed step takes 30.00 ms without warm-up steps and 10.00 ms behind 2; so few "
       "samples have no spread."},
      {"warmup", R"({"warmup":[{"status":"ok","warmup":2,"first_ms":9.0,"median_ms":8.0}]})",
       "With 2 for warm-up, the first timed step takes 9.000 ms, and the median of them 8.000 ms;"},
      {"profile",
       R"({"passes":[{"size":"tiny","mode":"inference","pass":"all","status":"ok","ms":10.0,"products_percent":97.0,"top_kernel":"matmul","top_percent":97.0},)"
       R"({"size":"tiny","mode":"step","pass":"all","status":"ok","ms":30.0,"products_percent":86.0,"top_kernel":"matmul","top_percent":86.0}],)"
       R"("clocks":[{"others_cores":1.3}]})",
       "Matrix products take 86.0 % of a step's kernels and 97.0 % of inference's (30.00 ms and "
       "10.00 ms); the most in a step goes to matmul, 86.0 %. Noisy: other programs used 1.3"},
      {"profile",
       R"({"passes":[{"size":"tiny","mode":"step","pass":"all","status":"ok","ms":30.0,"products_percent":86.0,"top_kernel":"matmul","top_percent":80.0}],)"
       R"("clocks":[{"others_cores":1.3}]})",
       "Matrix products take 86.0 % of the 30.00 ms that kernels run in one step of tiny; the most "
       "goes to matmul, 80.0 %. Noisy: other programs used 1.3"},
      {"precision", steps("5.0", "524288"),
       "takes 5.000 ms in bf16 and 10.00 ms in fp32: 2.00 times as fast. The peak falls from 1.00 "
       "MiB to 512.00 KiB. Gradients are off by 2.0e-03, relative to float64."},
      {"precision", steps("10.0", "1048576"),
       "in fp32: not apart beyond noise. The peak is the same."},
      {"precision", steps("20.0", "2097152"),
       "in fp32: 2.00 times as long. The peak rises from 1.00 MiB to 2.00 MiB."},
      {"precision", steps("20.0", "2097152", 3), "So few samples tell little."},
      {"precision",
       R"({"steps":[{"size":"tiny","mode":"step","precision":"bf16","status":"ok","median_ms":5.0}]})",
       "One step of tiny takes 5.000 ms in bf16; fp32 is not there to hold it against."},
      {"precision",
       R"({"accumulation":[{"experiment":"1: f32","count":1000,"term":"0.01","sum":"10.0001"},{"experiment":"2: f16","sum":"9.95"},{"experiment":"5: bf16","sum":"4"}]})",
       "Added up 1000 times, 0.01 gives 10.0001 in float32, 9.95 in float16 and 4 in bfloat16."},
      {"precision",
       R"({"formats":[{"format":"f16","max":65504.0,"spacing_at_one":0.00098},{"format":"bf16","max":3.39e38,"spacing_at_one":0.0078}]})",
       "float16 ends at 6.55e+04, bfloat16 at 3.39e+38; beside one, their numbers are 0.00098 and "
       "0.0078 apart."},
      {"precision",
       R"({"autocast":[{"autocast":"f16","value":"a","dtype":"f32"},{"autocast":"f16","value":"b","dtype":"f16"},{"autocast":"bf16","value":"a","dtype":"f32"}]})",
       "Under autocast 1 of 2 values of a small model stay float32."},
      {"precision",
       R"({"norms":[{"norm":"RMS norm","format":"bf16","step":"sum of squares","error":0.11}]})",
       "The largest error of a norm is 0.11: RMS norm in bf16, narrow in this step: sum of "
       "squares."},
      {"attention", attention("3.0"),
       "At context 128, width 64, forward and backward take 3.000 ms with tiles and 6.000 ms "
       "without: 2.00 times as fast; in between 1.00 KiB are alive, and 1.00 KiB without."},
      {"attention", attention("6.0"), "6.000 ms without: not apart beyond noise;"},
      {"attention", attention("12.0"), "6.000 ms without: 2.00 times as long;"},
      {"attention", changed(attention("3.0"), kBusy, kBusier), "Noisy: other programs used 1.3"},
      {"attention",
       attention("",
                 R"(,{"context":4096,"width":64,"status":"oom","predicted_peak_bytes":1048576})"),
       "forward takes 2.00 ± 0.10 ms and backward 4.00 ± 0.20 ms; 1.00 KiB are alive in between. "
       "Memory ends at context 4096, width 64, which needs 1.00 MiB."},
      {"attention", changed(attention(""), kBusy, kBusier), "Noisy: other programs used 1.3"},
      {"attention", changed(attention(""), R"("forward_std_ms":0.1,)", ""),
       "At context 128, width 64, forward takes 2.000 ms and backward 4.000 ms, from one sample "
       "each; 1.00 KiB are alive in between."},
      {"attention",
       changed(changed(attention(""), R"("forward_std_ms":0.1,)", ""),
               R"("backward_median_ms":4.0,)", ""),
       "Of context 128 and width 64, 1.00 KiB are alive before backward."},
      {"attention",
       R"({"attention":[{"context":64,"width":16,"status":"ok","before_backward_bytes":1024,"peak_bytes":2048}]})",
       "At context 64, width 16, 1.00 KiB are alive before backward and 2.00 KiB at the peak."},
      {"attention",
       R"({"attention":[{"context":64,"width":16,"status":"oom","predicted_peak_bytes":1024}]})",
       "None fits: context 64 at width 16 needs 1.00 KiB."},
      {"compile", ways("5.0", "524288"),
       "Compiled, one step of tiny (fused ops) takes 5.000 ms, eager 10.00 ms: 2.00 times as fast. "
       "The peak falls from 1.00 MiB to 512.00 KiB."},
      {"compile", ways("10.0", "1048576"),
       "eager 10.00 ms: not apart beyond noise. The peak stays 1.00 MiB."},
      {"compile", ways("20.0", "2097152"),
       "eager 10.00 ms: 2.00 times as long. The peak rises from 1.00 MiB to 2.00 MiB."},
      {"compile", ways("20.0", "2097152", 2), "So few samples tell little."},
      {"compile", ladder("5.0"),
       "The ladder takes a step from 10.00 ms to 5.000 ms, 2.00 times as fast; the rung bf16 gains "
       "most, 2.00 times."},
      {"compile", changed(ladder("5.0"), "\"ladder\"", "\"ladder@tiny 16 step\""),
       "The ladder takes a step from 10.00 ms to 5.000 ms, 2.00 times as fast;"},
      {"compile", changed(ladder("5.0"), "[5.0,5.0,5.0,5.0,5.0,5.0]", "[5.0]"),
       "So few samples tell little."},
      {"compile", ladder("10.0"), "from 10.00 ms to 10.00 ms: not apart beyond noise."},
      {"compile", ladder("20.0"), "from 10.00 ms to 20.00 ms: 2.00 times as long."},
      {"compile", R"({"ladder":[{"rung":"naive","status":"ok","median_ms":10.0}]})",
       "The lowest rung, naive, takes 10.00 ms."},
      {"compile", attention_ways("1.0"),
       "At context 64, width 16, compiled attention takes 1.000 ms, eager 3.000 ms: 3.00 times as "
       "fast."},
      {"compile", attention_ways("3.0"), "eager 3.000 ms: not apart beyond noise."},
      {"compile", attention_ways("6.0"), "eager 3.000 ms: 2.00 times as long."},
      {"compile",
       R"({"ways":[{"size":"tiny","mode":"step","executor":"eager","status":"ok","median_ms":10.0,"peak_bytes":1024}]})",
       "eager, one step of tiny takes 10.00 ms and 1.00 KiB at its peak."},
      {"comm",
       R"({"collectives":[{"collective":"all_reduce","bytes":1048576,"ranks":2,"median_ms":0.2,"bus_gb_s":5.5}]})",
       "all_reduce of 1.00 MiB over 2 ranks takes 200.0 µs, 5.5 GB/s on each rank's link."},
      {"comm",
       R"({"collectives":[{"collective":"barrier","bytes":1024,"ranks":2,"median_ms":0.2}]})",
       "barrier of 1.00 KiB over 2 ranks takes 200.0 µs."},
      {"predict",
       R"({"predictions":[{"label":"tiny step","predicted_ms":3.0,"low_ms":2.0,"high_ms":5.0,"peak_bytes":1024,"status":"ok"}]})",
       "Predicted: tiny step takes 3.000 ms (2.000 ms to 5.000 ms) and 1.00 KiB at its peak."},
      {"predict",
       R"({"predictions":[{"label":"tiny step","predicted_ms":3.0,"low_ms":2.0,"high_ms":5.0,"peak_bytes":1024,"status":"oom"}]})",
       "and 1.00 KiB at its peak, which does not fit."},
      {"predict",
       R"({"predictions":[{"label":"a","predicted_ms":3.0,"status":"ok"},{"label":"b","predicted_ms":4.0,"status":"ok"}]})",
       "Of 2 steps the shortest will take 3.000 ms (a), the longest 4.000 ms (b), as predicted."},
      {"predict",
       R"({"predictions":[{"label":"a","predicted_ms":3.0,"status":"ok"},{"label":"b","predicted_ms":4.0,"status":"oom"}]})",
       "the longest 4.000 ms (b), as predicted; 1 of them do not fit."},
      {"fit", fit("1073741824", ""),
       "It fits: at batch 4, context 512, fp32 the peak is 1.00 GiB, 1.00 GiB below the limit of "
       "2.00 "
       "GiB."},
      {"fit",
       changed(fit("1073741824", ""), R"("limit_bytes")", R"("predicted_ms":40.0,"limit_bytes")"),
       "A step is predicted to take 40.00 ms."},
      {"fit", fit("3221225472", kRemedies.substr(0, kRemedies.size() - 1)),
       "It does not fit: at batch 4, context 512, fp32 the peak is 3.00 GiB, 1.00 GiB above the "
       "limit of 2.00 GiB; with --batch "
       "1 it fits: 1.00 GiB."},
      {"fit", fit("3221225472", R"(,"remedies":[])"),
       "It does not fit: at batch 4, context 512, fp32 the peak is 3.00 GiB, 1.00 GiB above the "
       "limit of 2.00 GiB, and nothing "
       "that was tried fits."},
      {"fit", plan(R"("flags":"--parallel dp=8","tokens_per_s":84750.4,"mfu_percent":43.0)"),
       "8 × H100 SXM: batch 4, context 512, fp32 fits with --parallel dp=8, 1.00 GiB each; 84,751 "
       "tokens/s (43.0 % of the peak)."},
      {"fit", plan(R"("tokens_per_s":84750.4,"mfu_percent":43.0)"),
       "8 × H100 SXM: batch 4, context 512, fp32 fits, 1.00 GiB each; 84,751 tokens/s (43.0 % of "
       "the "
       "peak)."},
      {"fit", plan(kDays), "1.00 T tokens take 137 days."},
      {"fit", plan(kDays), "That is 26,225 device hours, for 52,450."},
      {"fit", plan(R"("flags":"--parallel dp=8,shard=3")"),
       "At batch 4, context 512, fp32 it fits on 8 devices with --parallel dp=8,shard=3, 1.00 GiB "
       "each."},
      {"fit", plan(R"("parallel":"none")"),
       "At batch 4, context 512, fp32 it fits as asked for, with a peak of 1.00 GiB on each "
       "device."},
      {"fit",
       R"({"largest_model":[{"batch":4,"context":512,"precision":"fp32","model":"pythia-160m","peak_bytes":1073741824}]})",
       "The largest model that fits at batch 4, context 512, fp32 is pythia-160m, with a peak of "
       "1.00 GiB on each device."},
      {"fit", "{" + least("2147483648").substr(1) + "}",
       "It does not fit: at batch 8, context 64, bf16 each device would hold 2.00 GiB at least, "
       "with --updates early."},
      {"fit", tight_fit(),
       "It fits with 1.00 MiB to spare, which is less than the margin: at batch 4, context 512, "
       "fp32 "
       "the peak is 1.00 GiB; with --batch 1 it is 1.00 GiB."},
      {"fit", fit("3221225472", kTwoRemedies),
       "The fastest change that fits is --moments bf16: a token takes 1.10 times as long as in the "
       "step asked for."},
      {"fit", fit("3221225472", kTwoRemedies + least("2147483648")),
       "The task as it is needs 2.00 GiB at least, with --updates early."},
      {"fit", fit("3221225472", R"(,"remedies":[])" + least("2147483648")),
       "The least that would do is 2.00 GiB, and 1.00 GiB for a single sequence; weights and "
       "states "
       "alone take 256.00 MiB. Several devices share it: add --gpus N."},
      {"fit", fit("3221225472", R"(,"remedies":[])" + least("1073741824")),
       "The least that would do is 1.00 GiB, of which weights and states take 512.00 MiB. Several "
       "devices share it: add --gpus N."},
      {"fit",
       R"({"largest":[{"context":512,"precision":"fp32","growth":"batch","change":"as asked for","batch":43,"peak_bytes":1024}]})",
       "The largest batch that fits at context 512, fp32 is 43, 1.00 KiB at the peak."},
      {"fit",
       R"({"largest":[{"context":512,"precision":"fp32","growth":"batch","change":"as asked for","batch":43},{"growth":"batch","change":"--attention flash","batch":60}]})",
       "The largest batch that fits at context 512, fp32 is 43 as asked for, and 60 with "
       "--attention flash."},
      {"fit",
       R"({"largest":[{"growth":"batch","change":"as asked for"},{"context":512,"precision":"fp32","growth":"batch","change":"--attention flash","batch":60}]})",
       "As asked for, at context 512, fp32, not even a batch of one fits; with --attention flash "
       "the largest is 60."},
      {"fit",
       R"({"largest":[{"growth":"context","change":"as asked for"},{"batch":4,"precision":"fp32","growth":"context","change":"--attention flash","context":64}]})",
       "As asked for, at batch 4, fp32, not even the shortest context fits; with --attention flash "
       "the longest is "
       "64."},
      {"fit",
       R"({"largest":[{"batch":4,"precision":"fp32","growth":"context","change":"as asked for","context":512,"peak_bytes":1024}]})",
       "The largest context that fits at batch 4, fp32 is 512, 1.00 KiB at the peak."},
      {"fit",
       R"({"largest":[{"batch":4,"precision":"fp32","growth":"context","change":"as asked for","context":512},{"growth":"context","change":"--attention flash","context":1024}]})",
       "The largest context that fits at batch 4, fp32 is 512 as asked for, and 1024 with "
       "--attention flash."},
      {"memory", memory("1073741824") + "}",
       "It fits: the peak is 1.00 GiB, 1.00 GiB below the limit of 2.00 GiB"},
      {"memory", memory("3221225472") + kRemedies,
       "It does not fit: the peak is 3.00 GiB, 1.00 GiB above the limit of 2.00 GiB; with --batch "
       "1 it fits: 1.00 GiB"},
      {"memory", memory("3221225472") + "}",
       "limit of 2.00 GiB; no smaller batch, context or precision that was tried fits either"},
      {"memory", memory("1073741824", R"(,"accounted_bytes":3221225472)") + "}",
       "It does not fit: the peak is 3.00 GiB, 1.00 GiB above the limit of 2.00 GiB"},
      {"memory", memory("1073741824", R"(,"accounted_bytes":1073741824)") + "}",
       "It fits: the peak is 1.00 GiB"},
      {"memory", memory("1073741824", R"(,"accounted_bytes":3221225472)") + kRemedies,
       "with --batch 1 it fits: 1.00 GiB"},
      {"memory", memory("1", "", R"(,{"size":"xl","status":"oom","predicted_peak_bytes":9})") + "}",
       "1 of 2 steps fit in 2.00 GiB"},
      {"memory", memory("1", R"(,"accounted_bytes":1)", R"(,{"size":"xl","status":"oom"})") + "}",
       "1 of 2 steps fit in 2.00 GiB"},
      {"no limit memory", recompute("1024"),
       "With recompute blocks the peak of tiny falls from 4.00 KiB to 1.00 KiB."},
      {"no limit memory", recompute("4096"),
       "Recomputation does not lower the peak of tiny, 4.00 KiB; what is saved for backward goes "
       "from "
       "2.00 KiB to 1.00 KiB."},
      {"no limit memory", memory_in("1024"),
       "In bf16 the peak of tiny falls from 4.00 KiB to 1.00 KiB."},
      {"no limit memory", memory_in("4096"), "In bf16 the peak of tiny stays 4.00 KiB."},
      {"no limit memory", memory_in("8192"),
       "In bf16 the peak of tiny rises from 4.00 KiB to 8.00 KiB."},
      {"no limit memory", memory("1024", R"(,"measured_peak_bytes":1024)") + kCategories,
       "tiny context 16 step fp32 peaks at 1.00 KiB, as predicted to the byte; the largest part, "
       "activation, is 50.0 % of it."},
      {"no limit memory", memory("1000", R"(,"measured_peak_bytes":1024)") + kCategories,
       "peaks at 1.00 KiB, and less was predicted;"},
      {"no limit memory", memory("2000", R"(,"measured_peak_bytes":1024)") + kCategories,
       "peaks at 1.00 KiB, and more was predicted;"},
      {"no limit memory", memory("1024") + kCategories,
       "tiny context 16 step fp32 will peak at 1.00 KiB; the largest part, activation, is 50.0 % "
       "of it."},
      {"no limit memory", memory("1024") + "}", "tiny context 16 step fp32 peaks at 1.00 KiB."},
      {"no limit memory",
       memory("1024", "", R"(,{"label":"xl","status":"ok","peak_bytes":2048})") + "}",
       "Of 2 steps tiny context 16 step fp32 peaks lowest, at 1.00 KiB, and xl highest, at 2.00 "
       "KiB."},
      {"throughput", throughput("50.0", "99.0", "100.0"),
       "Batch 4 is enough: 99 tokens/s of tiny, and at most 100 at batch 8; its peak is 4.00 KiB "
       "where that one's is 8.00 KiB. Batch 8 is the largest that was measured: a "
       "larger one may be faster. Noisy: other programs used 1.3 of your 2 cores."},
      {"throughput", throughput("50.0", "60.0", "100.0", true),
       "Batch 8 is the fastest, 100 tokens/s of tiny, and no smaller one comes within a twentieth "
       "of it; its peak is 8.00 KiB. Batch 16 does not fit: it needs 16.00 KiB."},
      {"throughput",
       R"({"throughput":[{"size":"tiny","batch":4,"status":"ok","peak_bytes":4096}]})",
       "Batch 4 of tiny holds 4.00 KiB at its peak; this device computes nothing"},
      {"throughput",
       R"({"throughput":[{"size":"tiny","context":16,"batch":4,"status":"oom","predicted_peak_bytes":4096}]})",
       "Out of memory: batch 4 of tiny at context 16 needs 4.00 KiB."},
      {"fingerprint",
       R"({"fingerprint":[{"tensor":"scores","elements":"BHT²","bytes":1024,"per_layer":2.0,"same_size_as":"BTC of 4 bytes"}]})",
       "Cannot tell: at this context scores (BHT²) have the size of BTC of 4 bytes; record a "
       "snapshot at another context."},
      {"fingerprint",
       R"({"fingerprint":[{"tensor":"scores","elements":"BHT²","bytes":1024,"per_layer":2.25,"same_size_as":null}]})",
       "Of scores (BHT², 1.00 KiB each) about 2 are kept for each layer."},
      {"fingerprint",
       R"({"fingerprint":[{"tensor":"scores","elements":"BHT²","bytes":1024,"per_layer":0.0,"same_size_as":null}]})",
       "No tensor of scores (BHT²) is kept: attention in tiles"},
      {"eval", R"({"eval":[{"loss":2.68,"perplexity":14.6,"bits_per_byte":1.93,"tokens":1234}]})",
       "The loss is 2.6800 nats per token, perplexity 14.60, 1.930 bits per byte of text (1234 "
       "tokens)."},
      {"eval", R"({"eval":[{"loss":2.68,"perplexity":14.6,"bits_per_byte":null,"tokens":1234}]})",
       "The loss is 2.6800 nats per token, perplexity 14.60 (1234 tokens)."},
      {"eval", R"({"eval":[{"loss":null,"tokens":1234}]})",
       "The loss of these 1234 tokens is not finite."},
      {"train",
       R"({"train":[{"steps":10,"status":"done","first_loss":6.0,"loss":3.0,"validation_loss":3.2}]})",
       "In 10 steps the loss fell from 6.00 to 3.00. The validation loss is 3.20."},
      {"train", R"({"train":[{"steps":10,"status":"done","first_loss":3.0,"loss":3.0}]})",
       "In 10 steps the loss stayed 3.00."},
      {"train", R"({"train":[{"steps":10,"status":"done","first_loss":3.0,"loss":6.0}]})",
       "In 10 steps the loss rose from 3.00 to 6.00."},
      {"train", R"({"train":[{"steps":0,"status":"interrupted","first_loss":null}]})",
       "Training ended behind 0 steps (interrupted)."},
      {"compare",
       compare(R"({"row":"a","verdict":"slower","ratio":1.1,"ratio_low":1.05,"ratio_high":1.2})"),
       "B takes 1.100 times as long as A (1.050 to 1.200): slower."},
      {"compare",
       compare(R"({"row":"a","verdict":"invalid","ratio":1.1,"ratio_low":1.05,"ratio_high":1.2})"),
       "B takes 1.100 times as long as A (1.050 to 1.200): impossible, for a row contradicts its "
       "own "
       "figures."},
      {"compare", compare(R"({"row":"a","verdict":"unclear","ratio":1.1,"ratio_low":null})"),
       "B takes 1.100 times as long as A in too few processes to tell (unclear); six on each side "
       "are the least."},
      {"compare",
       compare(
           R"({"row":"a","verdict":"slower"},{"row":"b","verdict":"same"},{"row":"c","verdict":"unclear"})"),
       "Of 3 rows B is faster in 0, slower in 1, the same in 1, and 1 cannot be told."},
      {"compare", compare(R"({"row":"a","verdict":"slower"},{"row":"b","verdict":"only in A"})"),
       "Of 2 rows B is faster in 0, slower in 1, the same in 0, and 1 cannot be told, of which 1 "
       "are "
       "in one result only."},
      {"compare", compare(R"({"row":"a","verdict":"missing in B","ratio":null})"),
       "B against A, 1 rows: missing in B."},
      {"compare",
       compare(R"({"row":"a","verdict":"slower","ratio":1.1,"ratio_low":1.05,"ratio_high":1.2,)"
               R"("differs":"precision fp32 → bf16"})"),
       "B takes 1.100 times as long as A (1.050 to 1.200): slower. A and B differ in precision "
       "fp32 → bf16."},
      {"compare", R"({"exact":[{"row":"a","differs":"batch 2 → 4"}]})",
       "A and B differ in batch 2 → 4."},
      {"compare", R"({"exact":[{"row":"a"},{"row":"b"}]})",
       "In 2 rows a count of bytes, launches or FLOPs differs, or an error."},
      {"published",
       R"({"published":[{"times":9,"compared":0,"agree":0}],"published_verdicts":[{"figures":30,"suspicious":2}]})",
       "None of 9 published times can be held against yours: no row here is of their model, shape "
       "and device. By their own arithmetic 2 of 30"},
      {"published",
       R"({"published":[{"times":9,"compared":5,"agree":4}],"published_verdicts":[{"figures":30,"suspicious":2}]})",
       "Of 5 published times that can be held against yours 4 agree. By their own arithmetic or "
       "beside yours, 2 of 30 published figures are suspicious."},
      {"explain",
       explain_rows(
           R"({"what":"first step","shown":"9 ms"},{"what":"first over median","shown":"3.0"},{"what":"error by the missing warm-up","shown":"1.2"})"),
       "The first step takes 9 ms, 3.0 times the median; counted in, it makes the mean 1.2 times "
       "the median."},
      {"explain",
       explain_rows(
           R"({"what":"mean","shown":"9 ms"},{"what":"sample standard deviation","shown":"1 ms"},{"what":"interval of the median, from","shown":"8 ms"},{"what":"to","shown":"10 ms"})"),
       "Steps take 9 ms ± 1 ms; their median lies between 8 ms and 10 ms."},
      {"explain", share("0.5"),
       "The host: kernels work 50.0 % of the time, and each launch takes it 2.000 µs."},
      {"explain", share("0.9"), "The device: kernels work 90.0 % of the time."},
      {"explain", share("1.4"),
       "It cannot be told here: kernels of recorded steps work for 140.0 % of a step"},
      {"explain",
       explain_rows(
           R"({"what":"what a clock without a wait would show","shown":"0.2","value":0.2})"),
       "Without a wait the clock would show 20.0 % of the time."},
      {"explain",
       explain_rows(
           R"({"what":"forward, by the program","shown":"3 GFLOP"},{"what":"step, by the program","shown":"9 GFLOP"})"),
       "Matrix products have 3 GFLOP in a forward pass and 9 GFLOP in a step."},
      {"explain",
       explain_rows(
           R"({"what":"intensity of layers.0.ffn.w1","shown":"236","value":236.0},{"what":"intensity of layers.0.attn.softmax","shown":"0.75","value":0.75},{"what":"ridge of an H200","shown":"13.9","value":13.9})"),
       "Arithmetic bounds a product of the feed-forward, 236 FLOPs for a byte where a GPU "
       "wants 13.9; bytes bound softmax, which has 0.75."},
      {"explain",
       explain_rows(
           R"({"what":"intensity of layers.0.ffn.w1","shown":"9","value":9.0},{"what":"intensity of layers.0.attn.softmax","shown":"0.75","value":0.75},{"what":"ridge of an H200","shown":"13.9","value":13.9})"),
       "Bytes bound all of it: a product of the feed-forward has 9 FLOPs for a byte and "
       "softmax 0.75, where a GPU wants 13.9."},
      {"explain",
       explain_rows(
           R"({"what":"inference: products' share of bytes moved","shown":"0.5","value":0.5},{"what":"step: products' share of bytes moved","shown":"0.46","value":0.46})"),
       "Products move 50.0 % of the bytes of inference and 46.0 % of a step's: AdamW moves "
       "bytes without a product."},
      {"explain",
       explain_rows(
           R"({"what":"inference: products' share of bytes moved","shown":"0.4","value":0.4},{"what":"step: products' share of bytes moved","shown":"0.46","value":0.46})"),
       "Products move 40.0 % of the bytes of inference and 46.0 % of a step's."},
      {"explain",
       explain_rows(
           R"({"what":"a step in parts: kernels","shown":"3186"},{"what":"a step in parts: moved","shown":"62 GiB"},{"what":"all of them: kernels","shown":"746"},{"what":"all of them: moved","shown":"22 GiB"})"),
       "In parts a step runs 3186 kernels that move 62 GiB; with a kernel for each composite "
       "746, which move 22 GiB."},
      {"explain",
       explain_rows(
           R"({"what":"peak of step","shown":"3 GiB"},{"what":"weights","shown":"1 GiB"},{"what":"AdamW's m and v","shown":"2 GiB"})"),
       "A step holds 3 GiB at its peak: 1 GiB of weights, 2 GiB of AdamW's states, and "
       "gradients and activations."},
      {"explain",
       explain_rows(
           R"({"what":"one layer, composite ops","formula":"by the program","shown":"168 MiB"},{"what":"all layers, composite ops","formula":"f","shown":"2 GiB"})"),
       "A layer keeps 168 MiB for its backward, all of them 2 GiB."},
      {"explain",
       explain_rows(
           R"({"what":"one tensor","shown":"6 MiB"},{"what":"scores of one layer","shown":"48 MiB"})"),
       "One tensor between the blocks has 6 MiB, and the scores of one layer 48 MiB."},
      {"explain",
       explain_rows(
           R"({"what":"states","shown":"981 MiB"},{"what":"moved by one update","shown":"3 GiB"})"),
       "AdamW holds 981 MiB beside the weights, and one update moves 3 GiB."},
      {"explain", explain_rows(R"({"what":"a step of this program, fused ops","shown":"3 GiB"},{"what":"the same at batch 2","shown":"2 GiB"},{"what":"the same with --recompute blocks","shown":"1 GiB"})"),
       "A step wants 3 GiB at its peak; with half the batch 2 GiB, with blocks computed again "
       "1 GiB."},
      {"explain",
       explain_rows(
           R"({"what":"nothing recomputed","shown":"2 GiB"},{"what":"groups of 1","shown":"240 MiB"},{"what":"FLOPs of a step with one more forward","shown":"1.33"})"),
       "Blocks keep 2 GiB; with their inputs alone kept 240 MiB, for 1.33 times the FLOPs of a "
       "step."},
      {"explain",
       explain_rows(
           R"({"what":"all layers, weights alone","shown":"1 GiB"},{"what":"at twice the context","shown":"4 GiB"})"),
       "The attention weights of all layers take 1 GiB, and at twice the context 4 GiB."},
      {"explain",
       explain_rows(
           R"({"what":"kept by plain attention, one layer","shown":"48 MiB"},{"what":"kept in tiles: log-sum-exp per row","shown":"96 KiB"},{"what":"of backward, plain","shown":"8 GFLOP"},{"what":"of backward in tiles","shown":"10 GFLOP"})"),
       "In tiles a layer keeps 96 KiB in place of 48 MiB; its backward computes scores again, "
       "10 GFLOP in place of 8 GFLOP."},
      {"explain",
       explain_rows(
           R"({"what":"gradients, fp32","shown":"490 MiB"},{"what":"2 ranks: each receives for their sum","shown":"490 MiB"},{"what":"2 ranks: shard=3 leaves, besides activations","shown":"981 MiB"})"),
       "Of two ranks each receives 490 MiB for the sum of 490 MiB of gradients; fully sharded "
       "each holds 981 MiB of weights, gradients and states."},
      {"explain",
       explain_rows(
           R"({"what":"data parallel: ranks whose sum backward hides","shown":"5"},{"what":"fully sharded: the same, forward and backward","shown":"5"},{"what":"tensor parallel: forward","shown":"3"})"),
       "Products hide what 5 data-parallel ranks send, 5 fully sharded ones, and 3 "
       "tensor-parallel ones in forward."},
      {"explain",
       explain_rows(
           R"({"what":"FLOPs of the products per score","shown":"256"},{"what":"of softmax, five operations a score","shown":"5"},{"what":"ratio, counting five","shown":"51.2"})"),
       "Attention's two products do 256 FLOPs for a score and softmax 5: 51.2 times as many."},
      {"explain",
       explain_rows(
           R"({"what":"weights, which stay","shown":"1 GiB"},{"what":"narrow copies of all that are multiplied","shown":"400 MiB"})"),
       "Weights stay in float32, 1 GiB, and narrow copies of all that are multiplied add 400 "
       "MiB."},
      {"explain",
       explain_rows(
           R"({"what":"1: f32 + f32","shown":"10"},{"what":"2: f16 + f16","shown":"9.953"},{"what":"5: bf16 + bf16","shown":"4"})"),
       "The same terms add up to 10 in float32, 9.953 in float16 and 4 in bfloat16."},
      {"explain",
       explain_rows(
           R"({"what":"values of both programs","shown":"40"},{"what":"of them in a low format","shown":"11"})"),
       "Of 40 values of the small model 11 are narrow; parameters, norms, the loss and "
       "gradients are not."},
      {"explain",
       explain_rows(
           R"({"what":"a gradient in fp16","shown":"0"},{"what":"and taken back in fp32","shown":"1e-08"},{"what":"the same gradient in bf16, unscaled","shown":"1e-08"})"),
       "A small gradient is 0 in float16 and 1e-08 where the loss was scaled; bfloat16 has "
       "1e-08 without."},
      {"explain",
       explain_rows(
           R"({"what":"256² in fp16","shown":"inf"},{"what":"Σ of C ones added up in bf16","shown":"256"})"),
       "The square of an input can be inf in float16, and a sum of ones stops at 256 in "
       "bfloat16."},
      {"explain",
       explain_rows(
           R"({"what":"step","shown":"9 ms"},{"what":"step with spans recorded","shown":"10 ms"},{"what":"cost per kernel","shown":"2 µs"})"),
       "A step takes 9 ms, and 10 ms while its kernels are recorded: 2 µs for each."},
      {"explain", R"({"claims":[{"row":"X1"},{"row":"X2"}]})",
       "Of published claims 2 here do not hold; each stands beside what is right and the command "
       "that shows it."},
      {"explain", bounds("strong"),
       "With its batch fixed, a step computes for at least half of its time on up to 70 ranks as "
       "data parallel, 56 fully sharded, 232 sharded × tensor."},
      {"explain", bounds("weak"),
       "With as many tokens for each rank, a step computes for at least half of its time on up to "
       "70 ranks as data parallel, 56 fully sharded, 232 sharded × tensor."},
  };
}

// Without a limit where the case says so: a page may ask for it.
std::optional<FirstAnswer> answer_of(Case c) {
  constexpr std::string_view kFree = "no limit ";
  if (!std::string_view(c.schema).starts_with(kFree)) return answered(c);
  std::vector<Table> tables = tables_of(c.tables);
  return first_answer("tracestep." + std::string(c.schema).substr(kFree.size()) + "/1", tables,
                      Json::Object{{"cores", 2}});
}

TEST(AnswerPagesTest, EachOutcomeIsChosenByItsRows) {
  for (const Case& c : cases()) {
    const auto found = answer_of(c);
    ASSERT_TRUE(found.has_value()) << c.schema << " " << c.tables;
    EXPECT_THAT(found->sentence, HasSubstr(c.sentence)) << c.tables;
  }
}

std::string escaped_for_regex(const std::string& words) {
  return std::regex_replace(words, std::regex(R"([.^$|()\[\]{}*+?\\])"), R"(\$&)");
}

// The words of a template around what is filled in.
std::regex pattern_of(const std::string& text) {
  std::string out;
  const Template parts = template_of(text);
  for (std::size_t i = 0; i < parts.plain.size(); ++i) {
    out += (i > 0 ? ".*" : "") + escaped_for_regex(parts.plain[i]);
  }
  return std::regex(out);
}

TEST(AnswerPagesTest, EveryTextOfEveryPageIsSaidByOneOfTheCases) {
  const std::filesystem::path folder = testing::source_folder() / "src/lab/pages/answers";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "these are no sources";
  std::vector<std::string> said;
  for (const Case& c : cases()) said.push_back(answer_of(c).value().sentence);
  std::set<std::string> schemas;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    schemas.insert(file.path().stem().string());
  }
  EXPECT_EQ(schemas.size(), 17u);
  int texts = 0;
  for (const std::string& schema : schemas) {
    for (const Page& page : answer_pages("tracestep." + schema + "/1")) {
      std::vector<std::string> all;
      for (const Block& block : page.blocks) {
        if (!block.text.empty()) all.push_back(block.text);
        for (const auto& [order, text] : block.outcome.cases) all.push_back(text);
      }
      for (const Outcome& phrase : page.phrases) {
        for (const auto& [order, text] : phrase.cases) all.push_back(text);
      }
      for (const std::string& text : all) {
        const std::regex pattern = pattern_of(text);
        EXPECT_TRUE(std::ranges::any_of(
            said, [&](const std::string& s) { return std::regex_search(s, pattern); }))
            << schema << ", " << page.head[0] << ": " << text;
        ++texts;
      }
    }
  }
  EXPECT_GT(texts, 90);
}

TEST(AnswerPagesTest, AnAnswerMarksTheColumnsThatAreAskedFor) {
  std::vector<Table> tables = tables_of(one_bench());
  const auto found = first_answer("tracestep.bench/1", tables, Json::object());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->table, "bench");
  ASSERT_EQ(tables.size(), 1u) << "the machine is no table of the result";
  std::vector<std::string> results;
  for (const Column& column : tables[0].columns) {
    if (column.is_result) results.push_back(column.name);
  }
  EXPECT_THAT(results, ElementsAre("peak_bytes", "mean_ms", "std_ms", "median_ms", "tokens_per_s"));
}

TEST(AnswerPagesTest, WithoutRowsThereIsNoAnswer) {
  std::vector<Table> tables = {{.name = "bench"}};
  EXPECT_FALSE(first_answer("tracestep.bench/1", tables, Json::object()));
  EXPECT_FALSE(first_answer("tracestep.passes/1", tables, Json::object())) << "no pages";
  EXPECT_TRUE(answer_pages("tracestep.show/1").empty());
}

}  // namespace
}  // namespace tracestep::pages
