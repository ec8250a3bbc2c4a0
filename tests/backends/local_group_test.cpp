// Collectives between threads: what they compute, what they count, and how they end.
#include "backends/comm/local/local_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/host_tensor.h"
#include "ir/op_def.h"
#include "ops/collective_sizes.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

using Group = std::vector<std::unique_ptr<Communicator>>;

// Calls work(rank) on a thread for each rank.
void on_ranks(const Group& group, const std::function<void(Communicator&)>& work) {
  std::vector<std::thread> threads;
  for (const auto& rank : group) threads.emplace_back([&] { work(*rank); });
  for (std::thread& thread : threads) thread.join();
}

TensorRef ref(HostTensor& tensor) {
  return {tensor.bytes.data(), tensor.dtype, tensor.shape, contiguous_strides(tensor.shape)};
}

HostTensor floats(std::vector<float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return HostTensor::of<float>(DType::kF32, {count}, std::span<const float>(values));
}

std::vector<float> values_of(const HostTensor& tensor) {
  const auto values = tensor.as<float>();
  return {values.begin(), values.end()};
}

// Element i of rank r. The second one cancels the first: what comes after that is kept, and what
// came before it is rounded away.
float element(int rank, std::int64_t i) {
  constexpr float kLarge = 1e8F;
  const auto value = static_cast<float>(i + 1);
  return value * (rank == 0 ? kLarge : rank == 1 ? -kLarge : 1.0F);
}

std::vector<float> elements(int rank, std::int64_t count) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(element(rank, i));
  return out;
}

std::vector<float> sums(int ranks, std::int64_t count) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = element(0, i);
    for (int r = 1; r < ranks; ++r) sum += element(r, i);
    out.push_back(sum);
  }
  return out;
}

// The r-th part of `whole`, padded with zeros.
std::vector<float> part_of(const std::vector<float>& whole, int ranks, int rank) {
  const auto count = static_cast<std::int64_t>(whole.size());
  std::vector<float> out(static_cast<std::size_t>(part_count(count, ranks)), 0.0F);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(rank) * out.size() + i;
    if (at < whole.size()) out[i] = whole[at];
  }
  return out;
}

struct Sizes {
  int ranks;
  std::int64_t count;
};
// Even, uneven, with ranks that own nothing, and nothing at all.
const Sizes kSizes[] = {{1, 5}, {2, 8}, {3, 7}, {4, 5}, {4, 2}, {3, 0}};

TEST(LocalGroupTest, AnAllReduceAddsUpInTheOrderOfTheRanks) {
  for (const auto& [ranks, count] : kSizes) {
    on_ranks(make_local_group(ranks), [&](Communicator& group) {
      HostTensor x = floats(elements(group.rank(), count));
      HostTensor y = HostTensor::zeros(DType::kF32, x.shape);
      group.all_reduce(ref(x), ref(y));
      EXPECT_EQ(values_of(y), sums(ranks, count)) << ranks << " ranks, " << count;
      EXPECT_EQ(values_of(x), elements(group.rank(), count)) << "the operand stays as it is";
      group.all_reduce(ref(x), ref(x));
      EXPECT_EQ(values_of(x), sums(ranks, count)) << "in place";
    });
  }
}

TEST(LocalGroupTest, EveryRankGetsItsPartOfASumAndGathersTheWhole) {
  for (const auto& [ranks, count] : kSizes) {
    on_ranks(make_local_group(ranks), [&](Communicator& group) {
      HostTensor x = floats(elements(group.rank(), count));
      HostTensor part =
          floats(std::vector<float>(static_cast<std::size_t>(part_count(count, ranks)), -1.0F));
      group.reduce_scatter(ref(x), ref(part));
      const std::vector<float> whole = sums(ranks, count);
      EXPECT_EQ(values_of(part), part_of(whole, ranks, group.rank())) << ranks << ", " << count;
      group.all_gather(ref(part), ref(x));
      EXPECT_EQ(values_of(x), whole) << ranks << " ranks, " << count;
    });
  }
}

TEST(LocalGroupTest, NarrowNumbersAreAddedUpInFloat32) {
  // 256 + 1 + 1 in bfloat16 would stay 256 if it were rounded after each sum.
  on_ranks(make_local_group(3), [&](Communicator& group) {
    HostTensor x = HostTensor::zeros(DType::kBF16, {1});
    x.as<BF16>()[0] = to_bf16(group.rank() == 0 ? 256.0F : 1.0F);
    group.all_reduce(ref(x), ref(x));
    EXPECT_EQ(to_float(x.as<BF16>()[0]), 258.0F);
  });
}

TEST(LocalGroupTest, TheBytesThatWereReceivedArePredicted) {
  ops::register_all();
  for (const auto& [ranks, count] : kSizes) {
    on_ranks(make_local_group(ranks), [&](Communicator& group) {
      const std::int64_t part = part_count(count, ranks);
      HostTensor x = HostTensor::zeros(DType::kF32, {count});
      HostTensor own = HostTensor::zeros(DType::kF32, {part});
      const Type whole{DType::kF32, {count}}, piece{DType::kF32, {part}};
      const Attrs attrs = in_group({ranks});
      std::int64_t expected = 0;
      const auto check = [&](const char* op, const Type& from, const Type& to) {
        expected += received_bytes({find_op(op), attrs, {&from, 1}, {&to, 1}}, group.rank());
        EXPECT_EQ(group.received_bytes(), expected) << op << ", " << ranks << ", " << count;
      };
      group.all_reduce(ref(x), ref(x));
      check("all_reduce", whole, whole);
      group.reduce_scatter(ref(x), ref(own));
      check("reduce_scatter", whole, piece);
      group.all_gather(ref(own), ref(x));
      check("all_gather", piece, whole);
      if (count % ranks == 0) {
        EXPECT_EQ(expected, 4 * (ranks - 1) * count * 4 / ranks) << "2(N-1)/N of the bytes, twice";
      }
    });
  }
}

TEST(LocalGroupTest, SomeRanksAreAGroupOfTheirOwn) {
  on_ranks(make_local_group(6), [&](Communicator& all) {
    // Neighbours, then those that have the same place among neighbours.
    for (const RankGroup kind : {RankGroup{3, 1}, RankGroup{2, 3}}) {
      Communicator& group = all.among(kind);
      EXPECT_EQ(group.ranks(), kind.ranks);
      EXPECT_EQ(group.rank(), kind.index_of(all.rank()));
      const std::int64_t before = all.received_bytes();
      HostTensor x = floats({static_cast<float>(1 << all.rank()), 0.0F, 0.0F, 0.0F, 0.0F, 0.0F});
      group.all_reduce(ref(x), ref(x));
      const bool is_first = all.rank() < 3;
      const float expected =
          kind.stride == 1 ? (is_first ? 7.0F : 56.0F) : static_cast<float>(9 << (all.rank() % 3));
      EXPECT_EQ(values_of(x)[0], expected) << "rank " << all.rank();
      EXPECT_EQ(all.received_bytes() - before, 4 * 2 * (kind.ranks - 1) * 6 / kind.ranks);
    }
    EXPECT_EQ(&all.among(RankGroup{6}), &all);
  });
}

TEST(LocalGroupTest, RanksThatCallDifferentlyAreNamed) {
  std::vector<std::string> messages(2);
  on_ranks(make_local_group(2), [&](Communicator& group) {
    HostTensor x = HostTensor::zeros(DType::kF32, {group.rank() == 0 ? 3 : 4});
    try {
      group.all_reduce(ref(x), ref(x));
    } catch (const Error& e) {
      messages[static_cast<std::size_t>(group.rank())] = e.what();
    }
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message,
                ::testing::AllOf(::testing::HasSubstr("3 f32"), ::testing::HasSubstr("4 f32")));
  }
}

TEST(LocalGroupDeathTest, ARankThatDoesNotComeEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_for_another = [] {
    const Group group = make_local_group(4, 0.05);
    HostTensor x = HostTensor::zeros(DType::kF32, {2});
    group[1]->among(RankGroup{2, 2}).all_reduce(ref(x), ref(x));  // of ranks 1 and 3
  };
  EXPECT_EXIT(wait_for_another(), ::testing::ExitedWithCode(1),
              "\\[rank 3\\] it did not come to all_reduce of rank 1 within 0.05 s");
}

TEST(LocalGroupTest, ARankThatEndsTheGroupLetsTheOthersGo) {
  const Group group = make_local_group(3);
  std::atomic<int> ended = 0;
  const auto reduce = [](Communicator& rank) {
    HostTensor x = HostTensor::zeros(DType::kF32, {2});
    rank.all_reduce(ref(x), ref(x));
  };
  on_ranks(group, [&](Communicator& rank) {
    try {
      if (rank.rank() == 1) return rank.end();
      reduce(rank);
    } catch (const GroupEnded&) {
      ++ended;
    }
  });
  EXPECT_EQ(ended, 2);
  EXPECT_THROW(reduce(*group[0]), GroupEnded) << "until it is started again";
  group[0]->restart();
  on_ranks(group, reduce);
}

}  // namespace
}  // namespace tracestep
