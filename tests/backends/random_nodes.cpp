// The nodes of a program one by one: what they were given and what they made of it, beside the
// float64 answer for the same operands.
#include <cmath>
#include <map>
#include <set>

#include "backends/op_bounds.h"
#include "backends/random_checks.h"
#include "ir/builder.h"
#include "passes/form_passes.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

const OpTest& record_of(const std::string& op) {
  static const std::map<std::string, OpTest> all = [] {
    std::map<std::string, OpTest> out;
    for (const OpTest& test : op_tests()) out.emplace(test.op, test);
    return out;
  }();
  return all.at(op);
}

// A program in which every observed node stands alone: operands are inputs, results are outputs.
class Alone {
 public:
  Alone(const Program& program, const std::vector<ObservedNode>& observed)
      : program_(program), observed_(observed) {}

  // The nodes as they are.
  Program nodes(Tensors& leaves) {
    return build(
        leaves, [](const OpTest&) { return true; }, false);
  }
  // Nodes whose bound is the sum of their terms' magnitudes: the ops that compute it.
  Program magnitudes(Tensors& leaves) {
    return build(
        leaves, [](const OpTest& t) { return t.bound == Bound::kTerms; }, true);
  }
  // Nodes that are measured against their decomposition.
  Program composites(Tensors& leaves) {
    return build(
        leaves, [](const OpTest& t) { return t.bound == Bound::kUnfused; }, false);
  }

  static std::string result_name(NodeId node, std::size_t result) {
    return fmt::format("y{}_{}", node, result);
  }

 private:
  Program build(Tensors& leaves, const std::function<bool(const OpTest&)>& wanted,
                bool as_magnitudes) const {
    Builder b("alone");
    for (const ObservedNode& one : observed_) {
      const Node& node = program_.node(one.node);
      const OpTest& record = record_of(node.op->name);
      if (!wanted(record)) continue;
      std::vector<Val> operands;
      for (const HostTensor& x : one.operands) {
        const std::string name = fmt::format("x{}_{}", one.node, operands.size());
        operands.push_back(b.input(name, {x.dtype, x.shape}));
        leaves[name] = as_magnitudes ? magnitude(x) : x;
      }
      const bool other = as_magnitudes && !record.terms_op.empty();
      const std::vector<Val> results = b.call(other ? find_op(record.terms_op) : *node.op, operands,
                                              as_magnitudes ? magnitude(node.attrs) : node.attrs);
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (one.results[i]) b.output(result_name(one.node, i), results[i]);
      }
    }
    return b.finish();
  }

  static HostTensor magnitude(const HostTensor& x) {
    std::vector<double> values = to_doubles(x);
    for (double& v : values) v = std::abs(v);
    return from_doubles(x.dtype, x.shape, values);
  }
  static Attrs magnitude(Attrs attrs) {
    const Attrs before = attrs;
    for (const auto& [name, value] : before.entries()) {
      if (const auto* real = std::get_if<double>(&value)) attrs.set(name, std::abs(*real));
    }
    return attrs;
  }

  const Program& program_;
  const std::vector<ObservedNode>& observed_;
};

// The largest of the result and the operands: a few results may all be small differences.
double largest_of(const ObservedNode& node, const std::vector<double>& answer) {
  double out = max_abs(answer);
  for (const HostTensor& x : node.operands) {
    if (is_floating(x.dtype)) out = std::max(out, max_abs(to_doubles(x)));
  }
  return out;
}

Tensors float64_values(Device& reference, const Program& program, const Tensors& leaves) {
  if (program.outputs.empty()) return {};
  return run_once(ExecutorKind::kEager, reference, executable(as_float64(program), reference),
                  leaves);
}

}  // namespace

std::vector<ObservedNode> observed_nodes(Device& device, const Program& program,
                                         const Tensors& leaves) {
  Store store(device);
  const auto executor = make_executor(ExecutorKind::kEager, store, program);
  set_leaves(*executor, store, leaves);
  std::vector<ObservedNode> out;
  const auto take_results = [&] {
    if (out.empty()) return;
    for (ValueId id : program.node(out.back().node).outputs) {
      out.back().results.push_back(executor->value(id));
    }
  };
  std::vector<RunObserver::Pause> pauses;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    if (!launches(program, program.nodes[i])) continue;
    pauses.push_back({id, [&, id] {
                        take_results();
                        out.push_back({.node = id});
                        for (ValueId x : program.node(id).inputs) {
                          out.back().operands.push_back(executor->value(x).value());
                        }
                      }});
  }
  pauses.push_back({static_cast<NodeId>(program.nodes.size()), take_results});
  executor->observe({.pauses = std::move(pauses)});
  executor->run();
  return out;
}

std::string first_inexact_result(const Program& program, const std::vector<ObservedNode>& observed,
                                 Device& device, Device& reference) {
  Alone alone(program, observed);
  Tensors operands, positive, of_composites;
  const Program nodes = alone.nodes(operands), sums = alone.magnitudes(positive),
                composites = alone.composites(of_composites);
  const Tensors answers = float64_values(reference, nodes, operands);
  const Tensors terms = float64_values(reference, sums, positive);
  Tensors parts;
  if (!composites.outputs.empty()) {
    const Program unfused = decompose(composites, [](const OpDef&) { return true; });
    parts = run_once(ExecutorKind::kEager, device, executable(unfused, device), of_composites);
  }
  for (const ObservedNode& one : observed) {
    const Node& node = program.node(one.node);
    const OpTest& record = record_of(node.op->name);
    for (std::size_t i = 0; i < one.results.size(); ++i) {
      if (!one.results[i]) continue;
      const std::string name = Alone::result_name(one.node, i);
      const HostTensor& answer = answers.at(name);
      const std::vector<double> exact = to_doubles(answer);
      std::string fault;
      switch (record.bound) {
        case Bound::kExact: fault = exact_fault(*one.results[i], answer); break;
        case Bound::kBeside: fault = beside_fault(*one.results[i], exact); break;
        case Bound::kResult: fault = terms_fault(*one.results[i], exact, exact); break;
        case Bound::kTerms:
          fault = terms_fault(*one.results[i], exact, to_doubles(terms.at(name)));
          break;
        case Bound::kUnfused:
          fault = parts_fault(*one.results[i], parts.at(name), exact,
                              record.floor_share * largest_of(one, exact));
          break;
      }
      if (!fault.empty()) {
        return fmt::format("result {} of node {} {}: {}", i, one.node, node.op->name, fault);
      }
    }
  }
  return {};
}

}  // namespace tracestep::testing
