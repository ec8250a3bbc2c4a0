// The product of axes: every combination of values, the first axis varying slowest. All grids of
// experiments are such products.
#pragma once

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace tracestep {

// The values of an axis, each as a function that changes a specification.
template <class Spec>
using Axis = std::vector<std::function<void(Spec&)>>;

// An axis that sets `member` of a specification to each of `values`. `member` is a member pointer
// or a function that returns a reference into the specification.
template <class Spec, class Values, class Member>
Axis<Spec> axis(const Values& values, Member member) {
  Axis<Spec> out;
  for (const auto& value : values) {
    out.push_back([value, member](Spec& spec) {
      auto& place = std::invoke(member, spec);
      place = static_cast<std::decay_t<decltype(place)>>(value);
    });
  }
  return out;
}

template <class Spec>
std::vector<Spec> product(std::vector<Spec> out, const std::vector<Axis<Spec>>& axes) {
  for (const Axis<Spec>& axis : axes) {
    std::vector<Spec> next;
    for (const Spec& spec : out) {
      for (const auto& change : axis) change(next.emplace_back(spec));
    }
    out = std::move(next);
  }
  return out;
}

}  // namespace tracestep
