// An op of one's own, the weighted sum y[r] = Σ_d w[d]·x[r,d]: a type rule, a gradient rule and a
// decomposition are all it takes to print, plan, differentiate and run it on every back end. With
// arguments it is tracestep with that op: example_weighted_sum bench --op weighted_sum --shape
// 4096x512+512.
#include <map>

#include "analysis/memory_map.h"
#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "cli/command.h"
#include "exec/executor.h"
#include "ir/print.h"
#include "ops/functions.h"
#include "ops/rules.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "passes/pipeline.h"

using namespace tracestep;
using Results = std::map<std::string, std::vector<double>>;

// x: [R,D], w: [D] → y: [R]
std::vector<Type> type_rule(const OpCall& call) {
  rules::require_same_dtype(call, 0, 1);
  const Shape& x = call.inputs[0].shape;
  if (x.rank() != 2) fail_usage(call.op.name, "x is {}; [R,D] is expected", x.str());
  rules::require_shape(call, 1, {x[1]});
  return std::vector{Type{call.inputs[0].dtype, Shape{x[0]}}};
}

// What runs where the op has no kernel of its own: here, everywhere.
std::vector<Val> decomposition(const OpExpansion& e) {
  return {ops::sum(ops::mul(e.inputs[0], e.inputs[1]), {1})};
}

// dx[r,d] = dy[r]·w[d] and dw[d] = Σ_r dy[r]·x[r,d]
std::vector<Val> gradient_rule(const OpExpansion& e) {
  const Val dy = ops::reshape(e.output_grads[0], {e.inputs[0].dim(0), 1});
  return {ops::mul(dy, e.inputs[1]), ops::sum(ops::mul(dy, e.inputs[0]), {0})};
}

Program build() {  // loss = Σ_r y[r]², so that dloss/dy = 2y
  Builder b("weighted_sum");
  const auto scope = b.scope("example");
  const Val x = b.parameter("x", {DType::kF32, {2, 3}}), w = b.parameter("w", {DType::kF32, {3}});
  const Val y = b.call1("weighted_sum", {x, w});  // the functions of ops/functions.h do no more
  b.output("y", y);
  b.output("loss", ops::sum(ops::unary("square", y), {0}));
  return b.finish();
}

Program program_for(const Device& device) {
  RunSpec run{.verify = true};
  PassContext context;
  run.mode = Mode::kForwardBackward;
  context.has_kernel = [&](const OpDef& op) { return device.has_kernel(op); };
  return run_pipeline(build(), run, context).program;
}

// Runs `program`, whose numbers are held as T, once.
template <class T>
Results run(Device& device, const Program& program, const Results& parameters) {
  Store store(device);
  const auto executor = make_executor(ExecutorKind::kEager, store, program);
  for (const auto& [name, values] : parameters) {
    HostTensor tensor = store.get(name);
    for (std::size_t i = 0; i < values.size(); ++i) tensor.as<T>()[i] = static_cast<T>(values[i]);
    store.set(name, tensor);
  }
  executor->run();
  Results out;
  for (const Output& o : program.outputs) {
    const HostTensor tensor = executor->output(o.name);
    for (const T value : tensor.as<T>()) out[o.name].push_back(value);
  }
  return out;
}

int main(int argc, char** argv) {
  ops::register_all();
  register_op({.name = "weighted_sum",
               .doc = "y[r] = Σ_d w[d]·x[r,d]",
               .inputs = {"x", "w"},
               .outputs = {"y"},
               .infer = type_rule,
               .gradient = gradient_rule,
               .decompose = decomposition});
  if (argc > 1) return cli::run_program(argc, argv);
  const auto cpu = make_cpu_device({.threads = 1}), reference = make_reference_device();
  const Program program = program_for(*cpu);
  fmt::print("{}\n{}\n", print(autograd(build())), print(program));
  for (const MappedBuffer& b : map_memory(program, cpu->traits()).buffers) {
    fmt::print("{:>3} B  {:<10} {:<8} {}\n", b.bytes, name_of(b.category), b.path, b.reason);
  }
  const Results parameters{{"x", {1, 2, 3, 4, 5, 6}}, {"w", {0.5, -1, 2}}};
  const Results expected{{"y", {4.5, 9}},  // by hand: 0.5-2+6 and 2-5+12
                         {"loss", {101.25}},
                         {"grad.w", {81, 108, 135}},
                         {"grad.x", {4.5, -9, 18, 9, -18, 36}}};
  const Results on_cpu = run<float>(*cpu, program, parameters);
  const Results oracle = run<double>(*reference, as_float64(program_for(*reference)), parameters);
  const bool same = on_cpu == expected && oracle == expected;  // all of them exact in float32
  fmt::print("cpu, reference and the values by hand {}\n", same ? "agree" : "DIFFER");
  return same ? 0 : 1;
}
