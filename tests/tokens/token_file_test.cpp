#include "tokens/token_file.h"

#include <sys/stat.h>

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "tokens/npy.h"

namespace tracestep {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string npy(std::string_view dict, std::string_view data, int version = 1) {
  std::string out = "\x93NUMPY";
  out += {static_cast<char>(version), '\0'};
  const auto size = static_cast<std::uint32_t>(dict.size());
  out.append(reinterpret_cast<const char*>(&size), version == 1 ? 2 : 4);
  return out.append(dict).append(data);
}

std::string npy_dict(std::string_view descr, std::string_view shape) {
  return fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}   \n", descr, shape);
}

std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count,
                 std::string_view data) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header).append(data);
}

std::vector<std::int64_t> all(const TokenSource& source, std::int64_t start = 0,
                              std::int64_t count = -1) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count < 0 ? source.size() : count));
  source.read(start, out);
  return out;
}

using Ids = std::vector<std::int64_t>;

class TokenFileTest : public ::testing::Test {
 protected:
  Ids read(std::string_view content, std::optional<TokenDType> dtype = {}) {
    return all(*open_token_file(folder_.write("tokens.bin", content), dtype));
  }
  std::string refused(std::string_view content, std::optional<TokenDType> dtype = {},
                      ErrorCode code = ErrorCode::kInput) {
    return message_of(code, [&] { read(content, dtype); });
  }
  TempFolder folder_;
};

TEST_F(TokenFileTest, HeaderlessFilesAreReadAsTheirDtypeSays) {
  EXPECT_EQ(read(bytes_of<std::uint16_t>({1, 65535}), TokenDType::kUint16), (Ids{1, 65535}));
  EXPECT_EQ(read(bytes_of<std::uint32_t>({1, 4294967295}), TokenDType::kUint32),
            (Ids{1, 4294967295}));
  EXPECT_TRUE(contains(refused("abcd", {}, ErrorCode::kUsage), "add option token_dtype uint16"));
  EXPECT_TRUE(contains(refused("abc", TokenDType::kUint16), "3 bytes are not a whole number"));
  EXPECT_TRUE(contains(refused("abcdef", TokenDType::kUint32), "6 bytes are not a whole number"));
  EXPECT_TRUE(contains(refused("", TokenDType::kUint16), "is empty"));
}

TEST_F(TokenFileTest, NpyFilesOfEveryVersionAndWidthAreRead) {
  EXPECT_EQ(read(npy(npy_dict("<u2", "(2,)"), bytes_of<std::uint16_t>({3, 65535}))),
            (Ids{3, 65535}));
  EXPECT_EQ(read(npy(npy_dict("<u4", "(1,)"), bytes_of<std::uint32_t>({4000000000}), 2)),
            (Ids{4000000000}));
  EXPECT_EQ(read(npy(npy_dict("<i4", "(2,)"), bytes_of<std::int32_t>({-1, 7}), 3)), (Ids{-1, 7}));
  EXPECT_EQ(read(npy(npy_dict("<i8", "(1,)"), bytes_of<std::int64_t>({1ll << 40}))),
            (Ids{1ll << 40}));
  EXPECT_EQ(read(npy(R"({"shape":(1,),"fortran_order":False,"descr":"<u2"})",
                     std::string_view("\1\0", 2))),
            (Ids{1}));
}

TEST_F(TokenFileTest, OtherNpyFilesAreRefused) {
  const auto dict = [](std::string_view descr, std::string_view shape) {
    return npy(npy_dict(descr, shape), "1234");
  };
  EXPECT_TRUE(contains(refused(dict(">u2", "(2,)")), "element type >u2"));
  EXPECT_TRUE(contains(refused(dict("<f4", "(1,)")), "element type <f4"));
  EXPECT_TRUE(contains(refused(dict("<u2", "(1, 2)")), "2 dimensions"));
  EXPECT_TRUE(contains(refused(dict("<u2", "()")), "0 dimensions"));
  EXPECT_TRUE(contains(refused(dict("<u2", "(3,)")), "the file has 4 bytes of data"));
  EXPECT_TRUE(contains(refused(dict("<u2", "(1,)")), "the file has 4 bytes of data"));
  EXPECT_TRUE(contains(refused(dict("<u2", "(9223372036854775807,)")), "bytes of data"));
  EXPECT_TRUE(contains(refused(dict("<u2", "(9223372036854775808,)")), "whole numbers"));
  EXPECT_TRUE(contains(refused(dict("<u2", "(-1,)")), "whole numbers"));
  EXPECT_TRUE(contains(
      refused(npy("{'descr': '<u2', 'fortran_order': True, 'shape': (2,)}", "1234")), "Fortran"));
  EXPECT_TRUE(contains(
      refused(npy("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (2,)}", "1234")),
      "records"));
  EXPECT_TRUE(contains(refused(npy(npy_dict("<u2", "(0,)"), "")), "holds no tokens"));
}

TEST_F(TokenFileTest, MalformedNpyHeadersAreRefused) {
  const std::string good = npy(npy_dict("<u2", "(1,)"), "12");
  for (std::size_t size = 1; size < good.size(); ++size) {
    const std::string cut = good.substr(0, size);
    folder_.write("cut.npy", cut);
    EXPECT_FALSE(
        message_of(ErrorCode::kInput, [&] { open_token_file(folder_ / "cut.npy"); }).empty())
        << size;
  }
  for (const char* dict :
       {"", "{", "{}", "{'descr'", "{'descr': '<u2'}", "{'descr': '<u2', 'descr': '<u2'}",
        "{'descr': '<u2', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (1,), 'x': 1}",
        "{'descr': '<u2', 'fortran_order': False, 'shape': [1]}",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (1,)} x", "{'descr: '<u2'}"}) {
    EXPECT_TRUE(contains(refused(npy(dict, "12")), "malformed header")) << dict;
  }
  EXPECT_TRUE(contains(refused(npy(npy_dict("<u2", "(1,)"), "12", 4)), "version 4.0"));
}

TEST_F(TokenFileTest, LlmcFilesAreRecognisedByTheirHeader) {
  EXPECT_EQ(read(llmc(20240520, 1, 2, bytes_of<std::uint16_t>({5, 50256}))), (Ids{5, 50256}));
  EXPECT_EQ(read(llmc(20240801, 7, 1, bytes_of<std::uint32_t>({128000}))), (Ids{128000}));
  EXPECT_TRUE(contains(refused(llmc(20240520, 1, 3, "1234")), "so 1030 bytes; the file has 1028"));
  EXPECT_TRUE(contains(refused(llmc(20240520, 1, -1, "1234")), "-1 tokens"));
  EXPECT_TRUE(contains(refused(llmc(20240522, 1, 1, "1234")), "evaluation file"));
  EXPECT_TRUE(contains(refused(llmc(20240520, 1, 2, "1234").substr(0, 500)), "the file has 500"));
  EXPECT_TRUE(contains(refused(llmc(20240520, 1, 0, "")), "holds no tokens"));
}

TEST_F(TokenFileTest, AStatedDtypeMustAgreeWithTheFile) {
  const std::string file = llmc(20240520, 1, 2, "1234");
  EXPECT_EQ(read(file, TokenDType::kUint16).size(), 2u);
  EXPECT_TRUE(contains(refused(file, TokenDType::kUint32, ErrorCode::kUsage),
                       "says its tokens are uint16, option token_dtype says uint32"));
  EXPECT_EQ(named<TokenDType>("uint16"), TokenDType::kUint16);
  EXPECT_EQ(named<TokenDType>("int16"), std::nullopt);
}

TEST_F(TokenFileTest, WhatIsNoRegularFileIsRefused) {
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  const auto refused = [](const std::filesystem::path& path) {
    return message_of(ErrorCode::kInput, [&] { open_token_file(path, TokenDType::kUint16); });
  };
  EXPECT_TRUE(contains(refused(folder_ / "fifo"), "not a regular file"));
  EXPECT_TRUE(contains(refused(folder_.path()), "not a regular file"));
  EXPECT_TRUE(contains(refused(folder_ / "missing"), "does not exist"));
  EXPECT_TRUE(contains(refused(folder_ / std::string(5000, 'x')), "cannot be opened"));
}

TEST_F(TokenFileTest, AFileThatIsCutShortWhileItIsUsedIsAnErrorAndNoSignal) {
  const auto path = folder_.write("tokens.bin", std::string(1 << 20, '\0'));
  const TokenSourcePtr tokens = open_token_file(path, TokenDType::kUint16);
  EXPECT_EQ(all(*tokens, 500'000, 2), (Ids{0, 0}));
  std::filesystem::resize_file(path, 10);
  EXPECT_EQ(all(*tokens, 0, 5).size(), 5u);
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { all(*tokens, 500'000, 2); }),
                       "had 1048576 bytes when it was opened and has 10 now"));
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { check_vocabulary(*tokens, 10); }),
                       "it was cut short while in use"));
}

TEST_F(TokenFileTest, ALongHeaderOfNumpyIsRefused) {
  const std::string space(1 << 17, ' ');
  EXPECT_TRUE(
      contains(refused(npy(npy_dict("<u2", "(1,)") + space, "ab", 2)), "at most 65524 are read"));
  std::string ones;
  for (int i = 0; i < 65; ++i) ones += "1,";
  EXPECT_TRUE(
      contains(refused(npy(npy_dict("<u2", "(" + ones + ")"), "ab")), "more than 64 dimensions"));
}

TEST(TokenSourceTest, EveryBlockIsVisitedOnceInOrder) {
  std::vector<std::int32_t> ids(100'000);
  std::iota(ids.begin(), ids.end(), 0);
  std::int64_t next = 0;
  for_each_block(*memory_tokens("memory", ids), [&](std::int64_t start, auto block) {
    EXPECT_EQ(start, next);
    for (std::int64_t id : block) ASSERT_EQ(id, next++);
  });
  EXPECT_EQ(next, 100'000);
}

TEST(TokenSourceTest, ReadingGoesRoundAtTheEndAsOftenAsNeeded) {
  const TokenSourcePtr tokens = memory_tokens("memory", {10, 11, 12});
  EXPECT_EQ(all(*tokens, 2, 8), (Ids{12, 10, 11, 12, 10, 11, 12, 10}));
  EXPECT_EQ(all(*tokens, 3'000'000'000'001, 2), (Ids{11, 12}));
}

TEST(TokenSourceTest, TheFirstIdBeyondTheVocabularyIsNamed) {
  std::vector<std::int32_t> ids(5000, 7);
  ids[4500] = 50257;
  EXPECT_NO_THROW(check_vocabulary(*memory_tokens("f.bin", ids), 50258));
  EXPECT_EQ(
      message_of(ErrorCode::kInput, [&] { check_vocabulary(*memory_tokens("f.bin", ids), 10000); }),
      "[tokens] f.bin: token 50257 at position 4500 is beyond the vocabulary of 10000");
  ids[17] = -1;
  EXPECT_TRUE(contains(
      message_of(ErrorCode::kInput, [&] { check_vocabulary(*memory_tokens("f.bin", ids), 60000); }),
      "token -1 at position 17"));
}

TEST(TokenSourceTest, ASplitSetsTheEndAsideAndGoesRoundWithin) {
  std::vector<std::int32_t> ids(10);
  std::iota(ids.begin(), ids.end(), 0);
  const TokenSplit split = split_tokens(memory_tokens("m", ids), 0.2);
  EXPECT_EQ(all(*split.train), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(all(*split.validation, 1, 3), (Ids{9, 8, 9}));
  EXPECT_EQ(split_tokens(memory_tokens("m", ids), 1e-9).validation->size(), 1);
  EXPECT_EQ(split_tokens(memory_tokens("m", ids), 0.999).train->size(), 1);
  for (double fraction : {0.0, 1.0, -0.5, std::nan("")}) {
    EXPECT_TRUE(contains(
        message_of(ErrorCode::kUsage, [&] { split_tokens(memory_tokens("m", ids), fraction); }),
        "0 < fraction < 1"));
  }
  message_of(ErrorCode::kInput, [] { split_tokens(memory_tokens("m", {1}), 0.5); });
  message_of(ErrorCode::kInput, [] { memory_tokens("m", {}); });
}

}  // namespace
}  // namespace tracestep
