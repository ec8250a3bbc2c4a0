// Random calls of ops on random operands: what random programs are made of. Operands come from what
// was computed before, made to fit by views and casts; values stay of moderate size.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "ir/builder.h"

namespace tracestep::testing {

// Random choices, a function of the seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : rng_(seed, "program") {}

  // Draws one of low, low + 1, …, high.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(
                     rng_.below(next_++, static_cast<std::uint64_t>(high - low + 1)));
  }
  bool chance(double probability) { return rng_.uniform(next_++) < probability; }
  template <class Range>
  const auto& pick(const Range& from) {
    return *(std::begin(from) + between(0, static_cast<std::int64_t>(std::size(from)) - 1));
  }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + between(0, static_cast<std::int64_t>(from.size()) - 1));
  }

 private:
  const CounterRng rng_;
  std::uint64_t next_ = 0;
};

// The values that a leaf may have, both ends included.
struct LeafRange {
  double low = -2.0, high = 2.0;
};

class RandomOps {
 public:
  // Draws calls into `builder`. `differentiable`: gradients can flow from every floating value to
  // every leaf that it depends on.
  RandomOps(Builder& builder, Dice& dice, bool differentiable);

  void add_calls(std::int64_t count);
  // Gives some of the states, and a parameter, new values. Nothing may be added afterwards that
  // reads a state or a parameter.
  void add_updates();
  // Makes outputs of results that no call reads, but for parts of a state or a parameter.
  void add_outputs();
  // Adds up the means of such results: the rank-0 float32 output "loss".
  void add_loss();

  // The ranges of leaves that do not have the usual one.
  const std::map<std::string, LeafRange>& ranges() const { return ranges_; }

 private:
  struct Item {
    Val value;
    double reach = 2.0;  // no element is larger in magnitude
  };
  using Recipe = void (RandomOps::*)();
  static constexpr std::int64_t kMostElements = 96;
  static constexpr double kReach = 8.0;  // of kept values

  static const std::vector<Recipe>& recipes();
  // Each of these makes a call of one family.
  void elementwise();
  void compare_and_select();
  void affine();
  void change_dtype();
  void count();
  void view();
  void copy();
  void join_parts();
  void pad();
  void generate();
  void reduce();
  void softmax();
  void normalize();
  void rotate();
  void multiply();
  void multiply_row();
  void multiply_rows(std::vector<Val> operands, const Attrs& attrs, const Shape& shape);
  void multiply_gated();
  void multiply_quantized();
  std::vector<Val> refreshed(Attrs attrs, Val last);
  void look_up();
  void scatter();
  void attend();
  void widen();
  void keep_with_cache(Val q, Val k, Val v);
  void entropy();
  void global_norm();
  // Each of these makes one kind of update.
  void update_in_place(Val state);
  void update_by_assignment(Val state);
  void update_by_writing(Val state);
  void update_by_moving(Val state);
  void update_by_adamw();
  void update_by_coded_adamw();

  static Dims all_axes(const Shape& shape);
  Val new_leaf(LeafKind kind, const Type& type, LeafRange range = {});
  Val indices(const Shape& shape, std::int64_t size);
  Shape new_shape(int least_rank = 0);
  // Picks a floating value, made smooth where gradients must flow.
  Item item();
  // Picks an item as a value of this type, with no element larger than `reach`.
  Val operand(const Type& type, double reach = 2.0);
  // Picks an operand with elements in [0.5, 2].
  Val positive(const Type& type);
  Val within(Item x, double reach);
  Val in_dtype(Val x, DType dtype);
  // Gives x another shape: its elements in row-major order, some of them, or all repeated.
  Val fit(Val x, const Shape& shape);
  void keep(Val value, double reach);
  bool is_smooth(Val value);
  // True if the value shares the bytes of a state or a parameter.
  bool is_of_leaf(Val value) const;
  std::vector<Val> unread() const;

  Builder& b_;
  Dice& dice_;
  const bool differentiable_;
  std::vector<Item> items_;           // floating
  std::vector<Val> flags_, numbers_;  // bool and integer
  std::vector<Val> states_;
  std::vector<bool> smooth_;  // by value, as far as known
  std::map<std::string, LeafRange> ranges_;
};

}  // namespace tracestep::testing
