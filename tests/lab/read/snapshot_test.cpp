// Snapshots with known answers, written by our own writer in PyTorch's form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/read/file_kind.h"
#include "lab/read/snapshot_file.h"
#include "lab/report/gzip.h"
#include "lab/snapshots/snapshot.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

SnapshotFacts facts_of(const MemorySnapshot& snapshot) {
  const TempFolder folder;
  return read_snapshot_facts(folder.write("s.pickle", pickle_of(snapshot)));
}

// 20 MiB are reserved; weights of 4 MiB lie there before the recording, activations of 8 MiB come
// and go, and at the end 3 MiB of gradients are there.
MemorySnapshot small_snapshot() {
  MemorySnapshot s;
  s.stacks.push_back({{"/venv/site-packages/torch/nn/modules/linear.py", "forward", 116},
                      {"/home/me/train.py", "step", 84}});
  s.stacks.push_back({{"/home/me/model.py", "forward", 12}});
  s.segments = {{.address = 1000 * kMiB,
                 .bytes = 20 * kMiB,
                 .blocks = {{1000 * kMiB, 4 * kMiB, 4 * kMiB, true, 0},
                            {1004 * kMiB, 8 * kMiB, 8 * kMiB, false, 0},
                            {1012 * kMiB, 3 * kMiB, 3 * kMiB, true, 1},
                            {1015 * kMiB, 5 * kMiB, 5 * kMiB, false, 0}}}};
  s.events = {
      {.action = "alloc", .address = 1004 * kMiB, .bytes = 8 * kMiB, .time_us = 1, .stack = 2},
      {.action = "free_requested", .address = 1004 * kMiB, .bytes = 8 * kMiB, .time_us = 2},
      {.action = "free_completed", .address = 1004 * kMiB, .bytes = 8 * kMiB, .time_us = 2},
      {.action = "alloc", .address = 1012 * kMiB, .bytes = 3 * kMiB, .time_us = 3, .stack = 1}};
  return s;
}

TEST(ReadSnapshotTest, ThePeakIsHeldByLinesOfTheUsersProgram) {
  const SnapshotFacts facts = facts_of(small_snapshot());
  EXPECT_EQ(facts.peak_bytes, 12 * kMiB);
  EXPECT_EQ(facts.reserved_at_peak_bytes, 20 * kMiB);
  EXPECT_EQ(facts.allocated_at_end_bytes, 7 * kMiB);
  ASSERT_EQ(facts.holders.size(), 2u);
  EXPECT_EQ(facts.holders[0].site, "model.py:12 forward");
  EXPECT_EQ(facts.holders[0].bytes, 8 * kMiB);
  EXPECT_EQ(facts.holders[1].site, "before the recording");
  EXPECT_EQ(facts.unused_at_end.bytes, 13 * kMiB);
  EXPECT_EQ(facts.unused_at_end.largest_bytes, 8 * kMiB);
  EXPECT_EQ(facts.unused_at_end.releasable_bytes, 0);
}

TEST(ReadSnapshotTest, BlocksWithoutEventsCountByWhatWasAskedFor) {
  MemorySnapshot s = small_snapshot();
  s.segments[0].blocks[0].requested_bytes -= 508;  // as a tensor of four bytes in a block of 512
  const SnapshotFacts facts = facts_of(s);
  EXPECT_EQ(facts.peak_bytes, 12 * kMiB - 508);
  EXPECT_EQ(facts.allocated_at_end_bytes, 7 * kMiB - 508);
  EXPECT_EQ(facts.unused_at_end.bytes, 13 * kMiB);
}

TEST(ReadSnapshotTest, OursAsJsonSaysTheSame) {
  const TempFolder folder;
  const auto path = folder.write("s.json", json_of(small_snapshot()));
  EXPECT_EQ(recorded_kind(path), RecordedKind::kSnapshot);
  const std::vector<Table> json = snapshot_tables(read_snapshot_facts(path));
  const std::vector<Table> pickle = snapshot_tables(facts_of(small_snapshot()));
  ASSERT_EQ(json.size(), pickle.size());
  for (std::size_t i = 1; i < json.size(); ++i) EXPECT_EQ(json[i].rows, pickle[i].rows);
}

TEST(ReadSnapshotTest, FramesOfPyTorchAreNotTheSite) {
  MemorySnapshot s = small_snapshot();
  s.events[3].bytes = s.segments[0].blocks[2].bytes = 3 * kMiB;
  s.events.erase(s.events.begin(), s.events.begin() + 3);
  const SnapshotFacts facts = facts_of(s);
  EXPECT_EQ(facts.holders[0].bytes, 4 * kMiB);
  EXPECT_EQ(facts.holders[1].site, "train.py:84 step");
}

TEST(ReadSnapshotTest, LibrariesAreNotTheProgramAndBackwardNamesItsFunctions) {
  MemorySnapshot s = small_snapshot();
  s.stacks[1] = {{"??", "torch::unwind::unwind()", 0},
                 {"/venv/lib/python3.12/site-packages/einops/_backends.py", "einsum", 291},
                 {"/usr/lib/python3.12/contextlib.py", "inner", 81},
                 {"/home/me/train.py", "step", 84}};
  s.stacks[2] = {
      {"??", "torch::unwind::unwind()", 0},
      {"", "at::_ops::bmm::call(at::Tensor const&, at::Tensor const&)", 0},
      {"??", "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>)", 0},
      {"thread48.o", "execute_native_thread_routine", 0}};
  const SnapshotFacts facts = facts_of(s);
  EXPECT_EQ(facts.holders[0].site, "BmmBackward0, in backward");
  s.events.erase(s.events.begin(), s.events.begin() + 3);
  EXPECT_EQ(facts_of(s).holders[1].site, "train.py:84 step");
}

TEST(ReadSnapshotTest, OutOfMemoryIsShownWithWhatLayUnused) {
  MemorySnapshot s = small_snapshot();
  s.events.push_back(
      {.action = "oom", .address = kMiB, .bytes = 10 * kMiB, .time_us = 4, .stack = 1});
  const SnapshotFacts facts = facts_of(s);
  ASSERT_EQ(facts.out_of_memory.size(), 1u);
  EXPECT_EQ(facts.out_of_memory[0].asked_bytes, 10 * kMiB);
  EXPECT_EQ(facts.out_of_memory[0].device_free_bytes, kMiB);
  EXPECT_EQ(facts.out_of_memory[0].allocated_bytes, 7 * kMiB);
  EXPECT_EQ(facts.out_of_memory[0].reserved_bytes, 20 * kMiB);
  // 8 and 5 MiB lie unused: enough, but in pieces.
  EXPECT_EQ(facts.out_of_memory[0].unused.bytes, 13 * kMiB);
  EXPECT_EQ(facts.out_of_memory[0].unused.largest_bytes, 8 * kMiB);
  EXPECT_THAT(facts.out_of_memory[0].remedy(), HasSubstr("expandable segments"));
}

TEST(ReadSnapshotTest, WhatHelpsWhereMemoryRanOutFollowsFromWhatWasFree) {
  const auto remedy = [](std::int64_t asked, std::int64_t free, SnapshotUnused unused) {
    return SnapshotOutOfMemory{
        .asked_bytes = asked, .device_free_bytes = free, .unused = unused, .site = {}}
        .remedy();
  };
  const SnapshotUnused pieces{.bytes = 100, .pieces = 4, .largest_bytes = 30};
  EXPECT_THAT(remedy(20, 0, pieces), HasSubstr("another pool"));
  EXPECT_THAT(remedy(80, 0, pieces), HasSubstr("expandable segments"));
  EXPECT_THAT(remedy(150, 60, pieces), HasSubstr("expandable segments"));
  EXPECT_THAT(remedy(150, 200, pieces), HasSubstr("limit of the process"));
  EXPECT_THAT(remedy(150, 20, pieces), HasSubstr("less at once"));
}

TEST(ReadSnapshotTest, PiecesAreThoseOfThePeakAndNotOfTheEnd) {
  MemorySnapshot s = small_snapshot();
  // A segment of 6 MiB is there until the peak has passed, and 2 MiB lie in it.
  s.events.insert(s.events.begin() + 1,
                  {{.action = "segment_alloc", .address = 2000 * kMiB, .bytes = 6 * kMiB},
                   {.action = "alloc", .address = 2001 * kMiB, .bytes = 2 * kMiB},
                   {.action = "free_completed", .address = 2001 * kMiB, .bytes = 2 * kMiB},
                   {.action = "segment_free", .address = 2000 * kMiB, .bytes = 6 * kMiB}});
  const SnapshotFacts facts = facts_of(s);
  EXPECT_EQ(facts.peak_bytes, 14 * kMiB);
  EXPECT_EQ(facts.unused_at_peak.bytes, (1 + 3 + 8) * kMiB);
  EXPECT_EQ(facts.unused_at_peak.largest_bytes, 8 * kMiB);
  EXPECT_EQ(facts.unused_at_end.bytes, 13 * kMiB);
}

TEST(ReadSnapshotTest, ReservationsAreFollowedBackwards) {
  MemorySnapshot s = small_snapshot();
  s.events.insert(s.events.begin() + 1,
                  {.action = "segment_alloc", .address = 2000 * kMiB, .bytes = 50 * kMiB});
  s.events.push_back({.action = "segment_free", .address = 2000 * kMiB, .bytes = 50 * kMiB});
  const SnapshotFacts facts = facts_of(s);
  EXPECT_EQ(facts.reserved_at_peak_bytes, 20 * kMiB);
  EXPECT_EQ(facts.most_reserved_bytes, 70 * kMiB);
  EXPECT_EQ(facts.reserved_at_end_bytes, 20 * kMiB);
}

TEST(ReadSnapshotTest, WithoutEventsThePeakIsTheState) {
  MemorySnapshot s = small_snapshot();
  s.events.clear();
  const SnapshotFacts facts = facts_of(s);
  EXPECT_EQ(facts.peak_bytes, 7 * kMiB);
  EXPECT_THAT(snapshot_tables(facts)[0].notes, ::testing::Contains(HasSubstr("no events")));
}

TEST(ReadSnapshotTest, WithoutEventsOfSegmentsNothingIsSaidOfWhatWasReserved) {
  MemorySnapshot s = small_snapshot();
  s.events[0].bytes = s.events[1].bytes = s.events[2].bytes = 30 * kMiB;
  const std::vector<Table> tables = snapshot_tables(facts_of(s));
  const Table& whole = tables[0];
  EXPECT_TRUE(whole.rows[0][*whole.index_of("reserved_at_peak_bytes")].is_null());
  EXPECT_EQ(whole.rows[0][*whole.index_of("reserved_bytes")].as_int(), 20 * kMiB);
  EXPECT_THAT(whole.notes, ::testing::Contains(HasSubstr("lacks events of segments")));
}

TEST(ReadSnapshotTest, ACompressedFileIsTheSame) {
  const TempFolder folder;
  const auto path = folder.write("s.pickle.gz", gzip(pickle_of(small_snapshot())));
  EXPECT_EQ(recorded_kind(path), RecordedKind::kSnapshot);
  EXPECT_EQ(read_snapshot_facts(path).peak_bytes, 12 * kMiB);
}

TEST(ReadSnapshotTest, ClassesAndOtherDataAreRefused) {
  const TempFolder folder;
  const auto message = [&](std::string_view bytes) {
    return message_of(ErrorCode::kInput,
                      [&] { read_snapshot_facts(folder.write("s.pickle", bytes)); });
  };
  EXPECT_FALSE(message(std::string_view("\x80\x02"
                                        "cos\nsystem\n.",
                                        14))
                   .empty());
  EXPECT_THAT(message(std::string_view("\x80\x02}.", 4)), HasSubstr("no 'segments'"));
  EXPECT_FALSE(message(std::string_view("\x80\x02", 2)).empty());
}

TEST(ReadSnapshotTest, TwoSnapshotsDifferByTheLinesThatHoldThem) {
  MemorySnapshot more = small_snapshot();
  more.events[0].bytes = more.events[1].bytes = more.events[2].bytes = 6 * kMiB;
  const Table changes = snapshot_difference(facts_of(small_snapshot()), facts_of(more));
  ASSERT_EQ(changes.rows.size(), 2u);
  EXPECT_EQ(changes.rows[1][0].as_string(), "model.py:12 forward");
  EXPECT_EQ(changes.rows[1][3].as_int(), -2 * kMiB);
}

}  // namespace
}  // namespace tracestep
