// Builds the program of attention alone, its key, and its bytes before anything runs.
#include <algorithm>

#include <fmt/format.h>

#include "analysis/memory_map.h"
#include "base/error.h"
#include "lab/attention/run.h"
#include "nn/scopes.h"
#include "ops/functions.h"
#include "spec/fields.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr const char* kScope = "attention";

Program forward_graph(const AttentionSpec& spec, DType dtype) {
  ops::register_all();
  Builder b("attention");
  const BatchShape shape = spec.run.shape;
  const Type type{dtype, spec.heads == 1
                             ? Shape{shape.batch, shape.context, spec.width}
                             : Shape{shape.batch, spec.heads, shape.context, spec.width}};
  const Val q = b.parameter("q", type), k = b.parameter("k", type), v = b.parameter("v", type);
  const Val upstream = b.input("upstream", type);
  Val y;
  {
    const auto scope = b.scope(kScope);
    y = ops::attention(q, k, v, {.causal = spec.causal});
  }
  return with_upstream_loss(b, y, upstream);
}

// Makes the scores an output as well, so that they are alive until the step is over.
void hold_scores(Program& program) {
  ValueId found = kNoValue;
  for (const Node& node : program.nodes) {
    if (node.origin().phase == Phase::kForward &&
        node.origin().path == scope::path({kScope, scope::kScores}) &&
        node.op->kernel_class == KernelClass::kGemm) {
      found = node.outputs[0];
    }
  }
  TRACESTEP_CHECK(found != kNoValue, "no product of scores in {}", program.name);
  program.outputs.push_back({"held.scores", program.value(found).layout.base});
}

}  // namespace

std::string name_of(const SavedScores& saved) {
  return std::string(saved.scores ? "scores+" : "") + (saved.exp ? "exp+" : "") + "weights";
}

std::string saved_name(const AttentionSpec& spec) {
  return spec.run.attention == AttentionForm::kFlash ? "lse" : name_of(spec.saved);
}

std::string label_of(const AttentionSpec& spec) {
  return fmt::format("{}width {} {} {} {}",
                     spec.heads == 1 ? "" : fmt::format("{} heads of ", spec.heads), spec.width,
                     spec.causal ? "causal" : "unmasked", name_of(spec.run.attention),
                     saved_name(spec));
}

SavedScores parse_saved(const About& where, const std::string& text) {
  SavedScores out;
  bool weights = false;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t plus = std::min(text.find('+', start), text.size());
    const std::string part = text.substr(start, plus - start);
    bool* field = part == "scores"    ? &out.scores
                  : part == "exp"     ? &out.exp
                  : part == "weights" ? &weights
                                      : nullptr;
    if (field == nullptr || *field) {
      throw Error(ErrorCode::kUsage, where,
                  field == nullptr ? fmt::format("there is no tensor of T² called \"{}\"", part)
                                   : fmt::format("{} is there twice", part),
                  "join scores, exp and weights by +, as scores+weights");
    }
    *field = true;
    start = plus + 1;
  }
  if (!weights) {
    throw Error(ErrorCode::kUsage, where,
                fmt::format("\"{}\" is without the weights, which backward reads", text),
                fmt::format("use {}", name_of(out)));
  }
  return out;
}

Json key_of(const AttentionSpec& spec) {
  // The key omits `ops`: the tensors that are saved determine them.
  Json out = part_of_key(spec.run,
                         [](const RunField& f) { return is_of_attention(f) && f.name != "ops"; });
  out["width"] = spec.width;
  if (spec.heads != 1) out["heads"] = spec.heads;
  out["mask"] = spec.causal ? "causal" : "none";
  if (spec.run.attention == AttentionForm::kNaive) out["saved"] = name_of(spec.saved);
  if (spec.copy > 1) out["copy"] = spec.copy;
  return out;
}

// Bytes of the tensors of B·H·T² that are alive before backward.
std::int64_t square_bytes_saved(const PartsProgram& p, const AttentionSpec& spec) {
  const BufferPlan buffer_plan = plan_buffers(p.program);
  const BatchShape shape = spec.run.shape;
  std::int64_t total = 0;
  for (const Buffer& buffer : buffer_plan.buffers) {
    if (buffer.first == kNoNode || buffer.first >= p.forward_end || buffer.last < p.forward_end) {
      continue;
    }
    const Type& type = p.program.type(buffer.owner);
    const int rank = type.shape.rank();
    const bool is_square = rank >= 3 && type.shape[rank - 1] == shape.context &&
                           type.shape[rank - 2] == shape.context &&
                           type.count() == shape.batch * spec.heads * shape.context * shape.context;
    if (is_square && is_floating(type.dtype)) total += buffer.bytes;
  }
  return total;
}

PartsProgram attention_program(const AttentionSpec& spec, const Device& device) {
  RunSpec run = spec.run;
  run.mode = Mode::kForwardBackward;
  run.gradients = GradientKind::kTransient;
  run.ops = spec.saved.exp ? Granularity::kPrimitive : Granularity::kFused;
  run.verify = false;
  Program program = program_for(forward_graph(spec, run.precision.parameters), run, device);
  program.name = "attention";
  if (spec.saved.scores) hold_scores(program);
  return parts_of(std::move(program));
}

double square_bytes(const AttentionSpec& spec) {
  const Precision& precision = spec.run.precision;
  // Under autocast softmax runs in float32, over scores of the low dtype.
  const DType dtype = precision.autocast ? DType::kF32 : precision.parameters;
  return static_cast<double>(spec.run.shape.batch * spec.heads) *
         static_cast<double>(size_of(dtype));
}

PartsBytes predict_attention(const AttentionSpec& spec, const Device& device) {
  return planned_bytes(attention_program(spec, device), spec.run.executor, device);
}

}  // namespace tracestep
