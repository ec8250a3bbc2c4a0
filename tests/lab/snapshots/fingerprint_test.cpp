// Reading snapshots back, ours and others', and telling implementations apart by them.
#include "lab/snapshots/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "base/error.h"
#include "lab/report/unpickle.h"
#include "lab/snapshots/snapshot.h"
#include "ops/functions.h"
#include "support/allocation_peak.h"

namespace tracestep {
namespace {

using namespace std::string_literals;

TEST(UnpickleTest, TheNewerOpcodesOfPlainDataAreRead) {
  // {"a": [1, (2, "b"), -3, 1.5, None, True]} as protocol 4 writes it.
  const std::string bytes = "\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00"s + "}\x94\x8c\x01"s +
                            "a\x94]\x94("s + "K\x01K\x02\x8c\x01"s +
                            "b\x94\x86\x94J\xfd\xff\xff\xff"s +
                            "G\x3f\xf8\x00\x00\x00\x00\x00\x00N\x88"s + "es."s;
  const Pickle pickle(bytes, "test");
  const PickleValue list = *pickle.root().find("a");
  ASSERT_EQ(list.size(), 6u);
  EXPECT_EQ(list[0].as_int(), 1);
  EXPECT_EQ(list[1][1].as_text(), "b");
  EXPECT_EQ(list[2].as_int(), -3);
  EXPECT_FALSE(pickle.root().find("nothing"));
}

TEST(UnpickleTest, AnUnsignedIntegerOf64BitsWrapsAndALongerOneIsRefused) {
  const std::string ones(8, '\xff');
  EXPECT_EQ(Pickle("\x80\x04\x8a\x09"s + ones + "\x00."s, "test").root().as_int(0), -1);
  EXPECT_THROW(Pickle("\x80\x04\x8a\x09"s + ones + "\x01."s, "test"), Error);
  EXPECT_THROW(Pickle("\x80\x04\x8a\x09"s + ones, "test"), Error);
}

TEST(UnpickleTest, WhatIsFetchedAgainIsTheSameObjectWithWhatWasAddedLater) {
  // A list is stored while it is empty, filled, and fetched: [[7], [7]].
  const std::string bytes = "\x80\x02](]q\x00K\x07"s + "ah\x00"s + "e."s;
  const Pickle pickle(bytes, "test");
  const PickleValue list = pickle.root();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].size(), 1u);
  EXPECT_EQ(list[1][0].as_int(), 7);
  EXPECT_EQ(list[0], list[1]);
}

TEST(TraceTest, ValuesNamedFarTooOftenAreRefused) {
  const auto text = [](const std::string& t) { return "\x8c"s + static_cast<char>(t.size()) + t; };
  const auto refusal = [](const std::string& bytes) {
    try {
      read_trace(bytes, "file");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("read");
  };
  const auto times = [](int n, const std::string& what) {
    std::string out;
    for (int i = 0; i < n; ++i) out += what;
    return out;
  };
  // An event, or a segment of a few blocks, is stored at place 0 and then named by two bytes; the
  // rest of the file is there to be allowed more.
  const int n = 100'000;
  const std::string rest = text("rest") + "X\x40\x0d\x03\x00"s + std::string(200'000, 'a');
  const std::string event = "}q\x00("s + text("action") + text("alloc") + text("addr") + "K\x01u"s;
  const std::string block = "}("s + text("state") + text("active_allocated") + "u"s;
  const std::string segment = "}q\x00"s + text("blocks") + "]("s + times(8, block) + "es"s;
  EXPECT_THAT(refusal("\x80\x04}("s + rest + text("device_traces") + "](]("s + event +
                      times(n, "h\x00"s) + "ee"s + text("segments") + "]u."s),
              ::testing::HasSubstr("too often"));
  EXPECT_THAT(refusal("\x80\x04}("s + rest + text("device_traces") + "]"s + text("segments") +
                      "]("s + segment + times(n, "h\x00"s) + "eu."s),
              ::testing::HasSubstr("too often"));
}

TEST(UnpickleTest, ObjectsCallsAndBrokenFilesAreRefused) {
  const auto message = [](const std::string& bytes) {
    try {
      Pickle(bytes, "file");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInput);
      return std::string(e.what());
    }
    return std::string("read");
  };
  EXPECT_THAT(message("\x80\x02"s + "cos\nsystem\n."s), ::testing::HasSubstr("plain data"));
  EXPECT_THAT(message("\x80\x02K\x01R."s), ::testing::HasSubstr("plain data"));
  EXPECT_THAT(message("\x80\x02X\xff\xff\xff\x7f"s + "a"s), ::testing::HasSubstr("ends"));
  EXPECT_THAT(message("\x80\x02"s), ::testing::HasSubstr("ends"));
  EXPECT_THAT(message("\x80\x02."s), ::testing::HasSubstr("empty"));
  EXPECT_THAT(message("\x80\x02K\x01"s + "a."s), ::testing::HasSubstr("empty"));
  EXPECT_THAT(message("\x80\x02K\x01K\x02"s + "a."s), ::testing::HasSubstr("no list"));
  EXPECT_THAT(message("\x80\x02h\x05."s), ::testing::HasSubstr("not stored"));
  EXPECT_THAT(message("\x80\x02"s + "e."s), ::testing::HasSubstr("mark"));
  EXPECT_THAT(message("hello"), ::testing::HasSubstr("no pickle"));
}

TEST(UnpickleTest, NestingCostsNoStackAndReferencesToItselfDoNotLeak) {
  // Lists in lists: 40,000 of them within the bounds of memory, five times as many beyond.
  const auto nested = [](std::size_t depth) {
    return "\x80\x02"s + std::string(depth, ']') + std::string(depth - 1, 'a') + ".";
  };
  EXPECT_EQ(Pickle(nested(40'000), "x").root().size(), 1u);
  EXPECT_THROW(read_trace(nested(40'000), "x"), Error);
  EXPECT_THROW(Pickle(nested(200'000), "x"), Error);
  const std::string itself = "\x80\x02]q\x00h\x00"s + "a.";
  const Pickle pickle(itself, "x");
  EXPECT_EQ(pickle.root()[0], pickle.root());
}

TEST(UnpickleTest, ValuesTakeAFewTimesTheFileInMemory) {
  for (std::string_view op : {"N", "(", "]", "}", "]\x94", "K\x01", "]N\x85", "(N.t", "\x94"}) {
    std::string bytes = "\x80\x02]";
    while (bytes.size() < (std::size_t{4} << 20)) bytes += op;
    bytes += ".";
    const std::size_t peak = testing::allocation_peak_of([&] {
      try {
        Pickle(bytes, "x");
      } catch (const Error&) {
      }
    });
    EXPECT_LT(peak, 4 * bytes.size() + (std::size_t{2} << 20)) << op;
  }
}

TEST(UnpickleTest, ContainersThatGrowInTurnKeepTheirItems) {
  // Two lists, memos 0 and 1, get one number each in turn; the pair of both is the result.
  std::string bytes = "\x80\x02]q\x00]q\x01"s;
  for (int i = 0; i < 100; ++i) {
    for (char memo : {'\0', '\1'}) {
      bytes += "h"s + memo + "K" + static_cast<char>(i) + "a0"s;
      bytes.pop_back();
    }
  }
  bytes += "h\x00h\x01\x86."s;
  const Pickle pickle(bytes, "x");
  const PickleValue pair = pickle.root();
  for (std::size_t side : {0u, 1u}) {
    ASSERT_EQ(pair[side].size(), 100u);
    for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(pair[side][i].as_int(), std::int64_t(i));
  }
}

TEST(MemoryTraceTest, AddressesBeyond64BitsAreRefused) {
  const auto snapshot = [](const char* address, const char* size) {
    return fmt::format(
        R"({{"device_traces":[],"segments":[{{"address":{},"blocks":[{{"state":"active_allocated",)"
        R"("size":{}}},{{"state":"active_allocated","size":{}}}]}}]}})",
        address, size, size);
  };
  EXPECT_EQ(read_trace(snapshot("4096", "512"), "x").there_before,
            (std::vector<std::int64_t>{512, 512}));
  EXPECT_THROW(read_trace(snapshot("0", "9223372036854775807"), "x"), Error);
  EXPECT_THROW(read_trace(snapshot("9223372036854775807", "1"), "x"), Error);
}

TEST(MemoryTraceTest, ValuesThatNameEachOtherAgainAndAgainDoNotTakeForever) {
  // A dict of a hundred thousand members that are no event's, named as an event as often.
  std::string bytes =
      "\x80\x02}q\x00(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00"s + "device_traces](](}q\x01("s;
  for (int i = 0; i < 100'000; ++i) bytes += "NN";
  bytes += "u";
  for (int i = 0; i < 100'000; ++i) bytes += "h\x01"s;
  bytes += "eeu.";
  try {
    read_trace(bytes, "x");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("name each other too often"));
  }
}

class FingerprintTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  // Six layers; no two of its tensors are of one size.
  static ModelConfig model() {
    return {.vocab = 70, .d_model = 48, .d_ff = 112, .layers = 6, .heads = 4};
  }
  static constexpr BatchShape kShape{.batch = 3, .context = 40};

  static MemoryTrace trace_of(const ModelConfig& model, BatchShape shape, Mode mode,
                              Granularity ops, std::string_view precision, bool as_json) {
    MemoryRunSpec spec;
    spec.step = {.model = model,
                 .shape = shape,
                 .mode = mode,
                 .precision = parse_precision("test", precision),
                 .ops = ops};
    const MemoryRun run = run_memory([](const RunSpec&) { return make_null_device(); }, spec);
    const MemorySnapshot snapshot = snapshot_of(run);
    return read_trace(as_json ? json_of(snapshot) : pickle_of(snapshot), "snapshot");
  }
  static Fingerprint of(Mode mode, Granularity ops, std::string_view precision, bool as_json) {
    return fingerprint_of(trace_of(model(), kShape, mode, ops, precision, as_json), model(),
                          kShape);
  }
  // As another program's snapshot: sizes and addresses only.
  static MemoryTrace without_labels(MemoryTrace trace) {
    for (AllocatorEvent& event : trace.events) event.label = -1;
    trace.labels.clear();
    return trace;
  }
  static std::string notes_of(const Fingerprint& found) {
    return fmt::format("{}", fmt::join(found.table.notes, "\n"));
  }
};

// Kept are the result of the scores' product, with exp in its place, and the weights.
TEST_F(FingerprintTest, TheNumberOfKeptScoresTellsTheSoftmaxApart) {
  for (bool as_json : {false, true}) {
    for (Mode mode : {Mode::kForward, Mode::kForwardBackward}) {
      EXPECT_EQ(of(mode, Granularity::kPrimitive, "fp32", as_json).scores_per_layer, 2);
      EXPECT_EQ(of(mode, Granularity::kFused, "fp32", as_json).scores_per_layer, 1);
    }
    EXPECT_EQ(of(Mode::kInference, Granularity::kPrimitive, "fp32", as_json).scores_per_layer, 0);
  }
}

TEST_F(FingerprintTest, SizesAloneTellTheSameWhereTheyAreAllDifferent) {
  for (const auto& [ops, scores] :
       {std::pair{Granularity::kPrimitive, 2}, {Granularity::kFused, 1}}) {
    const Fingerprint found = fingerprint_of(
        without_labels(trace_of(model(), kShape, Mode::kForward, ops, "fp32", false)), model(),
        kShape);
    EXPECT_EQ(found.scores_per_layer, scores);
    EXPECT_FALSE(found.scores_are_ambiguous);
    EXPECT_EQ(found.score_bytes, 4);
    EXPECT_EQ(found.mask, ops == Granularity::kPrimitive ? Presence::kYes : Presence::kNo);
    EXPECT_EQ(found.weight_copies, Presence::kNo);
  }
}

TEST_F(FingerprintTest, MasksAndNarrowWeightsAreSeen) {
  const Fingerprint plain = of(Mode::kForward, Granularity::kPrimitive, "fp32", false);
  EXPECT_EQ(plain.mask, Presence::kYes);
  EXPECT_EQ(plain.weight_copies, Presence::kNo);
  EXPECT_EQ(plain.score_bytes, 4);
  const Fingerprint fused = of(Mode::kForward, Granularity::kFused, "bf16", false);
  EXPECT_EQ(fused.mask, Presence::kNo);
  EXPECT_EQ(fused.weight_copies, Presence::kYes);
}

// tiny at context 128: BHT² of 4 bytes is BTF of 2 and CF of 4, BHT² of 2 is BTC of 4, and a mask
// of a byte is as large as a rotation table.
class OurOwnSnapshotTest : public FingerprintTest {
 protected:
  static constexpr BatchShape kAt128{.batch = 4, .context = 128};
  static Fingerprint of_tiny(Mode mode, Granularity ops, std::string_view precision,
                             bool has_labels = true) {
    MemoryTrace trace = trace_of(preset("tiny"), kAt128, mode, ops, precision, true);
    return fingerprint_of(has_labels ? trace : without_labels(std::move(trace)), preset("tiny"),
                          kAt128);
  }
};

TEST_F(OurOwnSnapshotTest, FusedScoresAreOneAndNotNine) {
  for (Mode mode : {Mode::kForward, Mode::kStep}) {
    EXPECT_EQ(of_tiny(mode, Granularity::kFused, "fp32").scores_per_layer, 1);
    EXPECT_EQ(of_tiny(mode, Granularity::kPrimitive, "fp32").scores_per_layer, 2);
  }
  EXPECT_EQ(of_tiny(Mode::kInference, Granularity::kFused, "fp32").scores_per_layer, 0);
}

TEST_F(OurOwnSnapshotTest, ARotationTableIsNoMask) {
  EXPECT_EQ(of_tiny(Mode::kForward, Granularity::kFused, "fp32").mask, Presence::kNo);
  EXPECT_EQ(of_tiny(Mode::kForward, Granularity::kPrimitive, "fp32").mask, Presence::kYes);
}

TEST_F(OurOwnSnapshotTest, AFloat32StepHasNoNarrowCopies) {
  EXPECT_EQ(of_tiny(Mode::kStep, Granularity::kFused, "fp32").weight_copies, Presence::kNo);
  EXPECT_EQ(of_tiny(Mode::kStep, Granularity::kFused, "bf16").weight_copies, Presence::kYes);
}

TEST_F(OurOwnSnapshotTest, ACastOfTheWeightsIsNotMaskedScores) {
  const Fingerprint found = of_tiny(Mode::kForward, Granularity::kPrimitive, "bf16");
  EXPECT_EQ(found.scores_per_layer, 3);
  EXPECT_THAT(notes_of(found), ::testing::HasSubstr("two are kept: exp and weights"));
  EXPECT_THAT(notes_of(found), ::testing::HasSubstr("1 of them a narrow copy"));
  EXPECT_THAT(notes_of(found), ::testing::HasSubstr("cast of attn.values, 2 bytes"));
}

TEST_F(OurOwnSnapshotTest, SizesAloneAreAmbiguousHereAndSaySo) {
  const Fingerprint found = of_tiny(Mode::kStep, Granularity::kFused, "fp32", false);
  EXPECT_TRUE(found.scores_are_ambiguous);
  EXPECT_EQ(found.mask, Presence::kAmbiguous);
  EXPECT_EQ(found.weight_copies, Presence::kAmbiguous);
  EXPECT_THAT(notes_of(found), ::testing::HasSubstr("cannot tell: up to"));
  EXPECT_THAT(notes_of(found), ::testing::HasSubstr("BTF of 2 bytes"));
}

TEST_F(FingerprintTest, ASnapshotOfAnotherModelIsAMismatch) {
  const MemoryTrace trace =
      trace_of(model(), kShape, Mode::kForward, Granularity::kFused, "fp32", false);
  for (const MemoryTrace& given : {trace, without_labels(trace)}) {
    const Fingerprint other = fingerprint_of(given, preset("medium"), kShape);
    EXPECT_TRUE(other.is_mismatch);
    EXPECT_THAT(notes_of(other), ::testing::StartsWith("mismatch: no block"));
    EXPECT_EQ(notes_of(other).find("scores"), std::string::npos);
    EXPECT_FALSE(fingerprint_of(given, model(), kShape).is_mismatch);
  }
  // The first sentence of a screen is made of these columns.
  const auto filled_in = [](const Fingerprint& found, const char* column) {
    const std::size_t at = found.table.index_of(column).value();
    return std::ranges::count_if(found.table.rows, [&](const auto& r) { return !r[at].is_null(); });
  };
  EXPECT_EQ(filled_in(fingerprint_of(trace, preset("medium"), kShape), "is_missing"), 1);
  EXPECT_EQ(filled_in(fingerprint_of(trace, model(), kShape), "kept_by_name"), 1);
  EXPECT_EQ(filled_in(fingerprint_of(without_labels(trace), model(), kShape), "kept_by_name"), 0);
}

// Presets share vocabulary and heads' width; tiny's projections are as large as medium's stream.
TEST_F(FingerprintTest, ASnapshotOfOnePresetIsAMismatchWithEveryOther) {
  constexpr BatchShape kShort{.batch = 2, .context = 32};
  const MemoryTrace trace =
      trace_of(preset("tiny"), kShort, Mode::kStep, Granularity::kFused, "fp32", true);
  for (const ModelConfig& other : model_presets()) {
    const Fingerprint found = fingerprint_of(trace, other, kShort);
    EXPECT_EQ(found.is_mismatch, other.name != "tiny") << other.name;
  }
  EXPECT_TRUE(fingerprint_of(trace, preset("tiny"), {.batch = 2, .context = 48}).is_mismatch);
}

TEST_F(FingerprintTest, ATraceOfAnotherProgramIsReadByItsEventsAlone) {
  // As another framework would write it: six layers that keep three tensors each, and weights and
  // the embedded tokens from before the recording.
  const std::int64_t scores = 4 * 3 * 4 * 40 * 40;
  MemorySnapshot s;
  for (int i = 0; i < 18; ++i) {
    const std::int64_t address = 0x1000 + i * 0x40000;
    s.events.push_back({"alloc", address, scores, i, 0, ""});
  }
  s.segments = {{0x1000, 18 * 0x40000, false, {}}};
  for (int i = 0; i < 18; ++i) {
    s.segments[0].blocks.push_back({0x1000 + i * 0x40000, 0x40000, scores, true, 0});
  }
  s.segments.push_back({0x1000000, 0x100000, false, {}});
  for (const std::int64_t elements : {48 * 112, 48 * 48, 3 * 40 * 48}) {
    const std::int64_t address = 0x1000000 + std::ssize(s.segments[1].blocks) * 0x40000;
    s.segments[1].blocks.push_back({address, 0x40000, 4 * elements, true, 0});
  }
  const Fingerprint found = fingerprint_of(read_trace(pickle_of(s), "theirs"), model(), kShape);
  EXPECT_EQ(found.scores_per_layer, 3);
}

TEST_F(FingerprintTest, AFileThatIsNoSnapshotIsRefused) {
  EXPECT_THROW(read_trace("\x80\x02}.", "x"), Error);
  EXPECT_THROW(read_trace("{}", "x"), Error);
}

}  // namespace
}  // namespace tracestep
