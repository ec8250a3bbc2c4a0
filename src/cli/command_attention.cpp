// tracestep attention: one attention by itself over widths and contexts.
#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/output.h"
#include "cli/roof.h"
#include "lab/attention/tables.h"

namespace tracestep::cli {
namespace {

constexpr const char* kSchema = "tracestep.attention/1";

// What a sweep is made of where no flag says otherwise.
struct Sweep {
  std::string_view name;
  std::int64_t batch;
  std::vector<std::int64_t> contexts;
  std::vector<std::string> precisions, attention;
};

const std::vector<Sweep>& sweeps() {
  static const std::vector<Sweep> all = {
      {"grid", 8, {256, 1024, 4096, 8192, 16384}, {"fp32"}, {"naive"}},
      {"flash",
       1,
       {128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536},
       {"bf16-pure", "fp32"},
       {"naive", "flash"}}};
  return all;
}

struct AttentionOptions {
  AttentionSpec base;  // warm-up, steps and time of every cell
  std::string sweep = "grid";
  std::optional<std::int64_t> batch;
  std::vector<std::int64_t> widths = {16, 32, 64, 128};
  std::vector<std::int64_t> contexts;
  std::vector<std::string> masks = {"causal"}, attention, precisions;
  std::vector<SavedScores> saved = {{}};
  RunOptions run;
  OutputOptions output;
};

// What no flag has said, from the sweep.
void complete(AttentionOptions& o) {
  const Sweep& sweep = *std::ranges::find(sweeps(), o.sweep, &Sweep::name);
  o.base.batch = o.batch.value_or(sweep.batch);
  o.base.seed = o.run.seed;
  if (o.contexts.empty()) o.contexts = sweep.contexts;
  if (o.precisions.empty()) o.precisions = sweep.precisions;
  if (o.attention.empty()) o.attention = sweep.attention;
}

// The forms that a cell is run in: naive once for every set of saved tensors.
std::vector<AttentionSpec> forms_of(const AttentionOptions& o, AttentionSpec spec) {
  std::vector<AttentionSpec> out;
  for (const std::string& name : o.attention) {
    spec.attention = attention_of(name);
    const std::size_t sets = spec.attention == AttentionForm::kFlash ? 1 : o.saved.size();
    for (std::size_t i = 0; i < sets; ++i) {
      spec.saved = spec.attention == AttentionForm::kFlash ? SavedScores{} : o.saved[i];
      out.push_back(spec);
    }
  }
  return out;
}

std::vector<AttentionSpec> specs_of(const AttentionOptions& o) {
  std::vector<AttentionSpec> out;
  for (const std::string& precision : o.precisions) {
    for (const AttentionSpec& form : forms_of(o, o.base)) {
      for (const std::string& mask : o.masks) {
        for (std::int64_t width : o.widths) {
          for (std::int64_t context : o.contexts) {
            AttentionSpec spec = form;
            spec.width = width;
            spec.context = context;
            spec.causal = mask == "causal";
            spec.precision = precision;
            out.push_back(spec);
          }
        }
      }
    }
  }
  return out;
}

// A machine without a limit would start to swap, or end the process, instead of saying no.
std::int64_t limit_of(const RunOptions& run, const Json& environment) {
  if (run.memory_limit_bytes > 0 || run.device != "cpu") return run.memory_limit_bytes;
  std::int64_t room = 0;
  for (const char* item : {"memory_total_bytes", "memory_limit_bytes"}) {
    const Json* bytes = environment.find(item);
    if (bytes == nullptr || !bytes->is_int()) continue;
    room = room == 0 ? bytes->as_int() : std::min(room, bytes->as_int());
  }
  return room / 10 * 9;
}

// Where memory ends: the first context of the grid that failed, and what twice the largest needs.
void add_limit_notes(std::span<const AttentionResult> results, const RunOptions& run,
                     Table& table) {
  if (results.empty()) return;
  const auto failed = std::ranges::find(results, "oom", &AttentionResult::status);
  table.notes.push_back(
      failed == results.end()
          ? "no cell ran out of memory"
          : fmt::format("out of memory first at width {}, context {}: it needs {}, the limit is {}",
                        failed->spec.width, failed->spec.context,
                        format_bytes(failed->predicted_peak_bytes),
                        run.memory_limit_bytes > 0 ? format_bytes(run.memory_limit_bytes)
                                                   : "the device's own"));
  AttentionSpec next = std::ranges::max_element(results, {}, [](const AttentionResult& r) {
                         return r.spec.context;
                       })->spec;
  next.context *= 2;
  const AttentionBytes bytes = predict_attention(next, *make_device(run, next.precision));
  table.notes.push_back(fmt::format(
      "twice that, context {} at width {}, would hold {} before backward and {} at the "
      "peak (predicted)",
      next.context, next.width, format_bytes(bytes.before_backward), format_bytes(bytes.peak)));
}

int run_attention(AttentionOptions o, std::span<const std::string> arguments) {
  complete(o);
  RunOptions run = o.run;
  run.precisions = o.precisions;
  check_device(run, {"cpu", "cuda", "null"});
  probe_output(o.output);
  const Json environment = environment_of(arguments, run);
  run.memory_limit_bytes = limit_of(run, environment);
  const std::vector<AttentionSpec> specs = specs_of(o);
  const StopSignal stop("the cells measured so far are written");
  Roof roof(run);
  std::vector<AttentionResult> results;
  {
    ProgressLine progress;
    for (const AttentionSpec& spec : specs) {
      progress.update(fmt::format("{}/{}  width {} context {} {} {}", results.size() + 1,
                                  specs.size(), spec.width, spec.context, name_of(spec.attention),
                                  spec.precision));
      const double known = roof.tflops(spec.precision);
      AttentionResult result =
          measure_attention([&] { return make_device(run, spec.precision); }, spec, &stop);
      if (result.status == "interrupted") break;
      result.roof_tflops = known;
      results.push_back(std::move(result));
    }
  }
  std::vector<Table> tables{attention_table(results, environment)};
  // A fit wants three contexts.
  if (Table scaling = attention_scaling_table(results); !scaling.rows.empty()) {
    tables.push_back(std::move(scaling));
  }
  add_limit_notes(results, run, tables[0]);
  write_tables(o.output, kSchema, environment, std::move(tables));
  if (results.size() == specs.size()) return 0;
  log_warn("stopped by a signal after {} of {} cells", results.size(), specs.size());
  return stop.exit_status();
}

void add_what(OptionSet& set, const std::shared_ptr<AttentionOptions>& o) {
  set.group("What to measure");
  set.choice("--sweep", o->sweep, {"grid", "flash"},
             "grid: naive attention, batch 8, fp32, contexts 256,1024,4096,8192,16384; flash: both "
             "forms, batch 1, bf16-pure and fp32, contexts 128 to 65536; grid");
  set.integer("--batch", o->batch, kShapeRange, "sequences in a batch, B; as --sweep");
  set.integers("--width", o->widths, kShapeRange, "width of q, k and v, D; 16,32,64,128");
  set.integers("--context", o->contexts, kShapeRange, "S; as --sweep");
  set.choices("--attention", o->attention, kAttentionNames,
              "two matrix products around a softmax, or tile by tile without N² tensors; as "
              "--sweep");
  set.choices("--mask", o->masks, {"causal", "none"}, "whether the future is hidden");
  set.value("--saved", "SET[,SET]",
            "naive: N² tensors that are alive when backward starts, joined by +: weights alone, or "
            "with exp (softmax in parts) and scores (held); weights",
            [o](const std::string& where, const std::string& text) {
              o->saved.clear();
              for (const std::string& part : split_list(where, text)) {
                o->saved.push_back(parse_saved(where, part));
              }
            });
  set.integer("--warmup", o->base.warmup, {0, 1000000}, "steps before the clock counts; 5");
  set.integer("--steps", o->base.steps, {1, 1000000}, "timed steps, each both parts; 100");
  set.real("--max-seconds", o->base.max_seconds, {0.001, 1e6},
           "end the timed steps of a cell after so long, however many there are");
}

}  // namespace

Command attention_command() {
  const auto options = std::make_shared<AttentionOptions>();
  Command command{
      .name = "attention",
      .summary = "what does attention cost as the context grows",
      .details =
          "Times softmax(q kT / sqrt(D)) v by itself, without heads: forward, backward apart from "
          "it, and both together. Shows the bytes alive between the two, the peak, and fits how "
          "they grow with "
          "the context: bytes per S² over those of one N² tensor say how many are saved. A cell "
          "that does not fit says oom, and the others go on.",
      .examples = {{"--sweep flash --max-seconds 1", "both forms, up to 65536 tokens"},
                   {"--width 16,64 --context 256,1024,2048 --steps 20", "a part of the grid"},
                   {"--device null --saved weights,scores+weights,scores+exp+weights",
                    "the bytes of one, two and three saved N² tensors, without a run"},
                   {"--device cuda --memory-limit 40GiB", "the grid on a smaller card"}}};
  OptionSet& set = command.options;
  add_what(set, options);
  set.group("How it runs");
  set.text("--device", "NAME", options->run.device, "cpu; cuda[:N]; null (bytes only)");
  set.integer("--threads", options->run.threads, {1, 4096},
              "CPU threads; OMP_NUM_THREADS, else all allowed cores");
  set.choices("--precision", options->precisions, precision_names(),
              "of q, k, v and products; as --sweep");
  set.bytes("--memory-limit", options->run.memory_limit_bytes,
            "behave like a device with this much memory; on a CPU nine tenths of what is there");
  set.integer("--seed", options->run.seed, {0}, "of the values; 0");
  add_output_options(set, options->output);
  command.run = [options](std::span<const std::string> arguments) {
    return run_attention(*options, arguments);
  };
  return command;
}

}  // namespace tracestep::cli
