#include "ir/verify.h"

#include <map>
#include <set>

#include "ir/op_def.h"

namespace tracestep {
namespace {

class Verifier {
 public:
  Verifier(const Program& program, VerifyStage stage) : program_(program), stage_(stage) {}

  void run() {
    leaves();
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) node(static_cast<NodeId>(i));
    for (const Output& output : program_.outputs) used(output.value, "output " + output.name);
    updates();
  }

 private:
  void leaves() {
    std::set<std::string_view> names;
    std::map<std::string_view, Memory> memory_of_block;
    for (ValueId id : program_.leaves) {
      const Value& v = program_.value(id);
      TRACESTEP_CHECK(v.producer == kNoNode && v.leaf != LeafKind::kNone, "leaf {}", v.name);
      TRACESTEP_CHECK(names.insert(v.name).second, "two leaves are called {}", v.name);
      TRACESTEP_CHECK(covers_base(program_, id) && !is_view(program_, id), "leaf {}", v.name);
      TRACESTEP_CHECK(v.memory == Memory::kDevice || v.leaf != LeafKind::kInput,
                      "input {} in host memory", v.name);
      const auto [block, is_new] = memory_of_block.try_emplace(v.part.block, v.memory);
      TRACESTEP_CHECK(is_new || v.part.block.empty() || block->second == v.memory,
                      "block {} lies in two memories", v.part.block);
      defined_.insert(id);
    }
  }

  std::string describe(NodeId id) const {
    const Node& n = program_.node(id);
    return fmt::format("node {} {} ({})", id, n.op->name, n.origins.empty() ? "" : n.origin().path);
  }

  void used(ValueId id, const std::string& by) const {
    TRACESTEP_CHECK(defined_.contains(id), "{} reads value {}, which is not defined yet", by, id);
  }

  void node(NodeId id) {
    const Node& n = program_.node(id);
    TRACESTEP_CHECK(!n.origins.empty(), "{} has no origin", describe(id));
    std::vector<Type> inputs;
    for (ValueId input : n.inputs) {
      used(input, describe(id));
      inputs.push_back(program_.type(input));
    }
    const std::vector<Type> results = n.op->infer({*n.op, n.attrs, inputs, {}});
    TRACESTEP_CHECK(results.size() == n.outputs.size(), "{}: result count", describe(id));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Value& v = program_.value(n.outputs[i]);
      TRACESTEP_CHECK(v.producer == id && v.output_index == static_cast<int>(i),
                      "{}: result {} has another producer", describe(id), i);
      TRACESTEP_CHECK(v.type == results[i], "{}: result {} is {}, inferred {}", describe(id), i,
                      v.type.str(), results[i].str());
      TRACESTEP_CHECK(defined_.insert(n.outputs[i]).second, "{}: defined twice", describe(id));
    }
    parts(id);
    layouts(id, inputs, results);
  }

  // Checks that the operands of a view, if it has several, follow one another in one block.
  void parts(NodeId id) const {
    const Node& n = program_.node(id);
    if (!n.op->is_view() || n.inputs.size() < 2) return;
    BlockPart expected = program_.value(n.inputs[0]).part;
    TRACESTEP_CHECK(!expected.block.empty(), "{}: the operands are no parts of a block",
                    describe(id));
    for (ValueId input : n.inputs) {
      TRACESTEP_CHECK(program_.value(input).part == expected, "{}: {} does not follow in block {}",
                      describe(id), program_.value(input).name, expected.block);
      expected.offset += program_.type(input).count();
    }
  }

  void layouts(NodeId id, const std::vector<Type>& inputs, const std::vector<Type>& results) const {
    const Node& n = program_.node(id);
    std::optional<Layout> view;
    if (n.op->view) {
      const Layout& from = program_.value(n.inputs[0]).layout;
      view = n.op->view({*n.op, n.attrs, inputs, results}, from);
      if (view) view->base = from.base;
    }
    const bool materialized = stage_ == VerifyStage::kMaterialized;
    if (n.op->view && materialized) {
      TRACESTEP_CHECK(view.has_value(), "{} needs a copy first", describe(id));
    }
    for (ValueId output : n.outputs) {
      const Layout own{output, 0, contiguous_strides(program_.type(output).shape)};
      TRACESTEP_CHECK(program_.value(output).layout == (view ? *view : own), "{}: layout",
                      describe(id));
    }
    if (!materialized || !n.op->accepts) return;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const Value& v = program_.value(n.inputs[i]);
      TRACESTEP_CHECK(n.op->accepts(static_cast<int>(i), v.type, v.layout.strides),
                      "{}: operand {} has strides {} for shape {}", describe(id), i,
                      v.layout.strides.str(), v.type.shape.str());
    }
  }

  void updates() const {
    std::map<ValueId, NodeId> updated_at;  // leaf -> the node that makes its new value
    for (const Update& u : program_.updates) {
      used(u.value, "update");
      const Value& leaf = program_.value(u.leaf);
      TRACESTEP_CHECK(leaf.leaf == LeafKind::kParameter || leaf.leaf == LeafKind::kState,
                      "{} cannot be updated", leaf.name);
      TRACESTEP_CHECK(leaf.type == program_.type(u.value), "update of {}", leaf.name);
      TRACESTEP_CHECK(updated_at.emplace(u.leaf, program_.value(u.value).producer).second,
                      "{} is updated twice", leaf.name);
    }
    const auto end = static_cast<NodeId>(program_.nodes.size());
    const auto not_stale = [&](ValueId read, NodeId by) {
      for (ValueId leaf : leaves_of(program_, read)) {
        const auto found = updated_at.find(leaf);
        const bool fresh =
            found == updated_at.end() || by <= found->second || found->second == kNoNode;
        TRACESTEP_CHECK(fresh, "{} reads the old value of {} after its update",
                        by < end ? describe(by) : "an output", program_.value(leaf).name);
      }
    };
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      for (ValueId input : program_.nodes[i].inputs) not_stale(input, id);
    }
    for (const Output& o : program_.outputs) not_stale(o.value, end);
  }

  const Program& program_;
  VerifyStage stage_;
  std::set<ValueId> defined_;
};

}  // namespace

void verify(const Program& program, VerifyStage stage) {
  Verifier(program, stage).run();
}

}  // namespace tracestep
