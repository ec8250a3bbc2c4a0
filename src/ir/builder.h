// Builder: the only way to make a Program. It infers types and layouts, fills in attribute
// defaults, records where every node comes from, and throws at a call whose operands do not fit.
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ir/op_def.h"
#include "ir/program.h"

namespace tracestep {

// The source line of a call, ours or the user's; a default argument of every op function.
using Here = std::source_location;

class Builder {
 public:
  explicit Builder(std::string name) { program_.name = std::move(name); }
  // Reserves room for a program about as large as this one.
  explicit Builder(const Program& like);
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // Adds a leaf. Throws Error{kUsage} if the name is taken or the leaf reaches beyond its block.
  Val input(std::string_view name, Type type) { return leaf(LeafKind::kInput, name, type); }
  Val parameter(std::string_view name, Type type, BlockPart part = {}) {
    return leaf(LeafKind::kParameter, name, type, Role::kNone, std::move(part));
  }
  Val state(std::string_view name, Type type, Role role = Role::kOptimizerState) {
    return leaf(LeafKind::kState, name, type, role);
  }
  // Adds a state of `dtype` for a parameter, named `prefix` + the parameter's name. States with one
  // prefix lie in memory side by side as their parameters do.
  Val state_of(Val parameter, std::string_view prefix, DType dtype,
               Role role = Role::kOptimizerState);
  Val leaf(LeafKind kind, std::string_view name, Type type, Role role = Role::kNone,
           BlockPart part = {});

  // Adds a node and returns its results.
  std::vector<Val> call(const OpDef& op, std::vector<Val> inputs, Attrs attrs = {},
                        Here here = Here::current());
  // Calls an op that has one result, and returns this result.
  Val call1(std::string_view op, std::vector<Val> inputs, Attrs attrs = {},
            Here here = Here::current());
  // Adds a node with the op, attributes and origins of `node`, a node of `from`, which a builder
  // must have made.
  std::vector<Val> copy(const Program& from, const Node& node, const std::vector<Val>& inputs);

  void output(std::string_view name, Val value);
  void update(Val leaf, Val value);
  void set_role(Val value, Role role) { mutable_value(value).role = role; }
  // Sets the memory in which a parameter or a state lies, which is one for all leaves of a block.
  void set_memory(Val leaf, Memory memory) { mutable_value(leaf).memory = memory; }
  // Makes a leaf a part of a block. Throws Error{kUsage} when it reaches beyond the block.
  void set_part(Val leaf, BlockPart part);

  Type type(Val value) const { return program_.type(value.id); }
  const Program& program() const { return program_; }
  // Returns a handle to an existing value of this builder.
  Val at(ValueId id) { return {this, id}; }

  // Returns the program; the builder is empty afterwards.
  Program finish();

  // The path, phase, pass, origins and epoch that new nodes get.
  struct Context {
    std::string path;
    Phase phase = Phase::kForward;
    std::string made_by;
    SharedVector<Origin> origins;  // non-empty: used instead of path and phase
    int epoch = 0;
  };

  // Restores the context when it is destroyed. While it exists, new nodes get a longer path,
  // another phase, or the origins of an existing node (in rewrites).
  class [[nodiscard]] Guard {
   public:
    Guard(Guard&& other) noexcept : builder_(other.builder_), saved_(std::move(other.saved_)) {
      other.builder_ = nullptr;
    }
    Guard& operator=(Guard&&) = delete;
    ~Guard() {
      if (builder_ != nullptr) builder_->context_ = std::move(saved_);
    }

   private:
    friend class Builder;
    explicit Guard(Builder* builder) : builder_(builder), saved_(builder->context_) {}
    Builder* builder_;
    Context saved_;
  };
  Guard scope(std::string_view path);
  Guard phase(Phase phase);
  Guard made_by(std::string_view pass);
  // Marks new nodes of the innermost guard as made by `pass`.
  void set_made_by(std::string_view pass) { context_.made_by = std::string(pass); }
  // Sets the epoch of new nodes of the innermost guard.
  void set_epoch(int epoch) { context_.epoch = epoch; }
  // While the guard exists, new nodes get the origins and epoch of `node`, with another phase if
  // `phase` is given.
  Guard like(const Node& node, const Phase* phase = nullptr);
  // While the guard exists, new nodes replace several nodes and get the origins of all of them.
  Guard like(std::span<const Node* const> nodes);

 private:
  Value& mutable_value(Val v) { return program_.values[static_cast<std::size_t>(v.id)]; }
  SharedVector<Origin> origins_for(const Here& here) const;
  Attrs checked_attrs(const OpDef& op, Attrs attrs) const;
  // Adds a node, which lacks inputs and outputs; its op infers the results.
  std::vector<Val> add(Node node, const std::vector<Val>& inputs);
  // True if `inputs` have the types and layouts of the inputs of `node`, so that its op infers the
  // same results.
  bool are_alike(const Program& from, const Node& node, const std::vector<Val>& inputs) const;
  ValueId add_result(NodeId node, int index, Type type, std::optional<Layout> view);

  Program program_;
  Context context_;
  std::unordered_set<std::string> leaf_names_;
  std::unordered_set<ValueId> updated_;  // leaves
};

}  // namespace tracestep
