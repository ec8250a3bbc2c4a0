#include "weights/safetensors.h"

#include <sys/stat.h>

#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "support/allocation_peak.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

std::string with_length(std::string_view header, std::string_view data = {}) {
  const std::uint64_t size = header.size();
  std::string out(reinterpret_cast<const char*>(&size), sizeof(size));
  return out.append(header).append(data);
}

// The message with which the reader refuses these bytes.
std::string refusal(std::string_view content) {
  const TempFolder folder;
  const auto path = folder.write("bad.safetensors", content);
  return message_of(ErrorCode::kInput, [&] { SafetensorsFile file(path); });
}

std::string refused_header(std::string_view header, std::string_view data = {}) {
  return refusal(with_length(header, data));
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":{}}})", dtype, shape, offsets);
}

HostTensor counted(DType dtype, const Shape& shape) {
  HostTensor out = HostTensor::zeros(dtype, shape);
  for (std::size_t i = 0; i < out.bytes.size(); ++i) out.bytes[i] = static_cast<std::byte>(i % 2);
  return out;
}

TEST(SafetensorsTest, EveryElementTypeSurvivesWritingAndReading) {
  const TempFolder folder;
  std::map<std::string, HostTensor> tensors;
  for (DType dtype : kAll<DType>) {
    tensors[std::string(name_of(dtype))] = counted(dtype, {3, 5});
    tensors["scalar " + std::string(name_of(dtype))] = counted(dtype, {});
    tensors["empty " + std::string(name_of(dtype))] = counted(dtype, {2, 0, 3});
  }
  write_safetensors(folder / "all.safetensors", {tensors.begin(), tensors.end()});

  const SafetensorsFile file(folder / "all.safetensors");
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const HostTensor read = file.read(name);
    EXPECT_EQ(read.dtype, tensor.dtype) << name;
    EXPECT_EQ(read.shape, tensor.shape) << name;
    EXPECT_EQ(read.bytes, tensor.bytes) << name;
  }
  EXPECT_EQ(file.entries().size(), tensors.size());
}

TEST(SafetensorsTest, TheHeaderIsPaddedOrderedAndMarkedForOtherReaders) {
  const TempFolder folder;
  const HostTensor bytes = counted(DType::kU8, {3}), floats = counted(DType::kF32, {2}),
                   halves = counted(DType::kBF16, {1});
  write_safetensors(folder / "w", {{"a", bytes}, {"b", halves}, {"d", floats}, {"c", floats}},
                    {{"step", "7"}, {"quote\"\n", "\xc3\xa9"}});

  const std::string content = content_of(folder / "w");
  std::uint64_t size = 0;
  std::memcpy(&size, content.data(), sizeof(size));
  EXPECT_EQ(size % 8, 0u);
  EXPECT_EQ(content[8], '{');
  const SafetensorsFile file(folder / "w");
  std::string order;
  for (const auto& e : file.entries()) order += e.name;
  EXPECT_EQ(order, "cdba");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("step"), "7");
  EXPECT_EQ(file.metadata().at("quote\"\n"), "\xc3\xa9");
}

TEST(SafetensorsTest, AnEmptySetOfTensorsIsAFile) {
  const TempFolder folder;
  write_safetensors(folder / "none", {});
  EXPECT_TRUE(SafetensorsFile(folder / "none").entries().empty());
}

TEST(SafetensorsTest, UnalignedDataIsReadByValue) {
  const TempFolder folder;
  const float value = 1.5f;
  const std::string data(reinterpret_cast<const char*>(&value), 4);
  const auto path =
      folder.write("odd", with_length("{\"a\":" + entry("U8", "[1]", "[0,1]") +
                                          ",\"b\":" + entry("F32", "[1]", "[1,5]") + "}",
                                      "x" + data));
  EXPECT_EQ(SafetensorsFile(path).read("b").as<float>()[0], 1.5f);
}

TEST(SafetensorsTest, LeadingSpaceAndUnknownMembersAreTolerated) {
  const TempFolder folder;
  const auto path = folder.write(
      "a", with_length(
               "  {\"a\":{\"new\":1,\"shape\":[],\"data_offsets\":[0,1],\"dtype\":\"U8\"}} ", "x"));
  EXPECT_EQ(SafetensorsFile(path).read("a").count(), 1);
}

TEST(SafetensorsTest, OtherElementTypesAreRefusedOnlyWhenRead) {
  const TempFolder folder;
  const auto path =
      folder.write("a", with_length("{\"x\":" + entry("F8_E8M0", "[2]", "[0,2]") + "}", "ab"));
  const SafetensorsFile file(path);
  const std::string message = message_of(ErrorCode::kInput, [&] { file.read("x"); });
  EXPECT_TRUE(contains(message, "tensor x is F8_E8M0"));
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { file.read("y"); }), "has no tensor y"));
}

TEST(SafetensorsTest, TooManyDimensionsAreRefusedOnlyWhenRead) {
  const TempFolder folder;
  const auto path = folder.write(
      "a", with_length("{\"x\":" + entry("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", "a"));
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { SafetensorsFile(path).read("x"); }),
                       "9 dimensions"));
}

TEST(SafetensorsTest, WhatIsNoRegularFileIsRefusedWithoutBlocking) {
  const TempFolder folder;
  const auto fifo = folder / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto refused = [](const std::filesystem::path& path) {
    return message_of(ErrorCode::kInput, [&] { SafetensorsFile file(path); });
  };
  EXPECT_TRUE(contains(refused(fifo), "a FIFO, not a regular file"));
  EXPECT_TRUE(contains(refused(folder.path()), "a directory, not a regular file"));
  EXPECT_TRUE(contains(refused("/dev/null"), "a device, not a regular file"));
  EXPECT_TRUE(contains(refused(folder / "missing"), "does not exist"));
}

TEST(SafetensorsTest, CutAndOversizedFilesAreRefused) {
  EXPECT_TRUE(contains(refusal("\x01\x02\x03\x04\x05\x06\x07"), "it has only 7 bytes"));
  EXPECT_TRUE(contains(refusal(std::string(8, '\xff')), "at most 100000000"));
  EXPECT_TRUE(contains(refusal(std::string("\x0a\0\0\0\0\0\0\0{}", 10)), "truncated"));
  const std::string header = "{\"a\":" + entry("F32", "[2]", "[0,8]") + "}";
  EXPECT_TRUE(contains(refused_header(header, "1234567"), "truncated"));
  EXPECT_TRUE(contains(refused_header(header, "123456789"), "the file holds 9"));
  EXPECT_TRUE(contains(refused_header("{}", "1"), "the file holds 1"));
}

// The first bytes of an archive of torch.save: the header of its first member, with the name.
std::string zip_of(std::string_view member) {
  std::string out("PK\x03\x04\x00\x00\x08\x08\x00\x00", 10);
  out.resize(26);
  out += static_cast<char>(member.size());
  out += '\0';
  out.append(2, '\0').append(member);
  return out.append(1000, '\x01');
}

TEST(SafetensorsTest, FilesOfOtherKindsAreToldWhatTheyAre) {
  const std::string prose = "Once upon a time there was a na\xc3\xafve caf\xc3\xa9. ";
  std::string cut_in_a_character = std::string(511, 'a') + "\xc3\xa9" + std::string(600, 'b');
  const std::pair<std::string, const char*> files[] = {
      {"", "it is empty"},
      {"my\n", "it is text"},
      {"8 chars\n", "it is text"},
      {prose, "it is text"},
      {cut_in_a_character, "it is text"},
      {"{\n \"metadata\": {}, \"weight_map\": {}}", "it is JSON"},
      {"{ \"a\":\n {\"b\": 1}}", "it is JSON"},
      {zip_of("archive/data.pkl"), "it is a PyTorch archive; load it with torch.load and save its"},
      {"\x80\x02\x8a\nl\xfc\x9c" + std::string(100, '\0'), "it is a PyTorch archive"},
      {zip_of("arr_0.npy"), "it is an archive of NumPy arrays"},
      {zip_of("word/document.xml"), "it is a zip archive"},
      {"PK\x03\x04", "it is a zip archive"},
      {std::string("GGUF\x03\0\0\0\0\0", 10), "it is a GGUF file of llama.cpp"},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10) + std::string(600'000, 'x'),
       "it is compressed by gzip; unpack it"},
      {"\x93NUMPY\x01", "it is a NumPy array"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0", "it is a pointer of Git LFS"},
      {std::string(5000, '\0'), "what follows its first 8 bytes is not a JSON object"},
      {std::string("\x10\0\0\0\0\0\0\0abc\0", 12), "is not a JSON object"},
  };
  for (const auto& [content, what] : files) {
    EXPECT_TRUE(contains(refusal(content), "bad.safetensors is no safetensors file: "));
    EXPECT_TRUE(contains(refusal(content), what)) << content.substr(0, 40);
  }
  // A header that is one, however absurd its length, is spoken of.
  for (const char* length : {"\xff\xff\xff\xff\xff\xff\xff\xff", "\0\0\0\0\0\x01\0\0"}) {
    EXPECT_TRUE(contains(refusal(std::string(length, 8) + "{\"a\":1}"), "at most 100000000"));
  }
}

TEST(SafetensorsTest, HeadersThatAreNoCleanJsonObjectAreRefused) {
  for (const char* header : {"", " ", "[]", "null", "\"a\"", "\xef\xbb\xbf{}"}) {
    EXPECT_TRUE(contains(refused_header(header), "not a JSON object")) << header;
  }
  EXPECT_TRUE(contains(refused_header("{\"\xff\":1}"), "not UTF-8"));
  EXPECT_TRUE(contains(refused_header(std::string_view("{}\0 ", 4)), "NUL"));
  for (const char* header : {"{", "{}}", "{} x", "{\"a\":}", "{'a':1}"}) {
    EXPECT_TRUE(contains(refused_header(header), "not valid JSON")) << header;
  }
  EXPECT_FALSE(refused_header("{\"a\":" + std::string(1'000'000, '[')).empty());
}

TEST(SafetensorsTest, DuplicatesAndBadNamesAreRefused) {
  const std::string e = entry("U8", "[0]", "[0,0]");
  EXPECT_TRUE(contains(refused_header("{\"a\":" + e + ",\"a\":" + e + "}"), "occurs twice"));
  EXPECT_TRUE(contains(refused_header("{\"a\":" + e + ",\"\\u0061\":" + e + "}"), "occurs twice"));
  EXPECT_TRUE(contains(refused_header("{\"a\\u0000b\":" + e + "}"), "contains NUL"));
}

TEST(SafetensorsTest, MalformedEntriesAreRefused) {
  const auto refused = [](const std::string& e) { return refused_header("{\"a\":" + e + "}"); };
  EXPECT_TRUE(contains(refused("7"), "tensor a is not an object"));
  EXPECT_TRUE(contains(refused(R"({"shape":[],"data_offsets":[0,0]})"), "has no dtype"));
  EXPECT_TRUE(contains(refused(R"({"dtype":"U8","data_offsets":[0,0]})"), "has no shape"));
  EXPECT_TRUE(contains(refused(R"({"dtype":"U8","shape":[]})"), "has no data_offsets"));
  EXPECT_TRUE(contains(refused(entry("U8", "[0]", "[0,0,0]")), "has no data_offsets"));
  EXPECT_TRUE(contains(refused(entry("U9", "[0]", "[0,0]")), "unknown dtype U9"));
  EXPECT_TRUE(contains(refused(entry("F4", "[1]", "[0,1]")), "4 bits are not whole bytes"));
  for (const char* dim : {"-1", "-0", "1.0", "1e2", "\"1\"", "null", "[1]", "18446744073709551616",
                          "18446744073709551615", "9223372036854775808"}) {
    EXPECT_TRUE(contains(refused(entry("U8", fmt::format("[{}]", dim), "[0,1]")),
                         "shape must hold whole numbers"))
        << dim;
    EXPECT_TRUE(contains(refused(entry("U8", "[1]", fmt::format("[{},1]", dim))),
                         "data_offsets must hold whole numbers"))
        << dim;
  }
  for (const char* metadata : {"1", "[]", R"({"a":1})", R"({"a":null})", R"({"a":{}})"}) {
    EXPECT_TRUE(
        contains(refused_header(fmt::format(R"({{"__metadata__":{}}})", metadata)), "__metadata__"))
        << metadata;
  }
}

TEST(SafetensorsTest, SizesThatDoNotMatchOrOverflowAreRefused) {
  const auto refused = [](const std::string& e, std::string_view data) {
    return refused_header("{\"a\":" + e + "}", data);
  };
  EXPECT_TRUE(contains(refused(entry("F32", "[2]", "[0,4]"), "1234"), "need 8"));
  EXPECT_TRUE(contains(refused(entry("U8", "[1]", "[1,0]"), "1"), "before it begins"));
  const std::string big = "4611686018427387904";
  EXPECT_TRUE(contains(refused(entry("U8", "[" + big + "," + big + "]", "[0,1]"), "1"),
                       "does not fit 64 bits"));
  EXPECT_TRUE(
      contains(refused(entry("F64", "[" + big + "]", "[0,1]"), "1"), "does not fit 64 bits"));
  EXPECT_TRUE(contains(refused(entry("U8", "[" + big + "," + big + ",0]", "[0,0]"), ""),
                       "does not fit 64 bits"));
}

TEST(SafetensorsTest, HolesAndOverlapsAreRefused) {
  const auto two = [](const char* a, const char* b) {
    return refused_header(
        "{\"a\":" + entry("U8", "[2]", a) + ",\"b\":" + entry("U8", "[2]", b) + "}", "12345");
  };
  EXPECT_TRUE(contains(two("[0,2]", "[3,5]"), "leaving a hole"));
  EXPECT_TRUE(contains(two("[1,3]", "[3,5]"), "leaving a hole"));
  EXPECT_TRUE(contains(two("[0,2]", "[1,3]"), "inside the one before"));
  EXPECT_TRUE(contains(two("[0,2]", "[0,2]"), "inside the one before"));
}

TEST(SafetensorsTest, AHeaderTakesAFewTimesItsSizeInMemory) {
  const TempFolder folder;
  const auto peak_of = [&](const std::string& header) {
    const auto path = folder.write("f", with_length(header, "x"));
    return testing::allocation_peak_of([&] {
      try {
        SafetensorsFile file(path);
      } catch (const Error&) {
      }
    });
  };
  const auto repeated = [](auto&& element) {
    std::string out;
    for (int i = 0; out.size() < (std::size_t{4} << 20); ++i) out += element(i) + ",";
    out.pop_back();
    return out;
  };
  const auto one = [](int) -> std::string { return "1"; };
  const std::string tensor = entry("U8", "[1]", "[0,1]");
  const std::vector<std::string> headers = {
      "{" + repeated([](int i) {
        return fmt::format("\"{}\":{}", i, entry("U8", "[0]", "[0,0]"));
      }) + "}",
      "{\"a\":" + entry("U8", "[" + repeated(one) + "]", "[0,1]") + "}",
      "{\"a\":" + entry("U8", "[1]", "[" + repeated(one) + "]") + "}",
      "{\"a\":{\"new\":[" + repeated(one) + "]," + tensor.substr(1) + "}",
      "{\"__metadata__\":{" + repeated([](int i) { return fmt::format("\"{}\":\"\"", i); }) + "}}",
      "{\"" + repeated(one) + "\":" + tensor + "}",
  };
  for (const std::string& header : headers) {
    EXPECT_LT(peak_of(header), 4 * header.size() + (std::size_t{9} << 20)) << header.substr(0, 60);
  }
}

TEST(SafetensorsTest, BoundsOfCountsAreHeld) {
  std::string ones = "1", members;
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_TRUE(
      contains(refused_header("{\"a\":" + entry("U8", "[" + ones + "]", "[0,1]") + "}", "x"),
               "more than 64 dimensions"));
  for (int i = 0; i < 70'000; ++i) members += fmt::format("{}\"{}\":\"\"", i > 0 ? "," : "", i);
  EXPECT_TRUE(
      contains(refused_header("{\"__metadata__\":{" + members + "}}"), "more than 65536 members"));
}

TEST(SafetensorsTest, AFileThatIsCutShortWhileItIsUsedIsAnErrorAndNoSignal) {
  const TempFolder folder;
  write_safetensors(folder / "w", {{"a", counted(DType::kF32, {1 << 16})}});
  const SafetensorsFile file(folder / "w");
  std::filesystem::resize_file(folder / "w", 4096);
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { file.read("a"); }),
                       "it was cut short while in use"));
}

TEST(SafetensorsTest, AnInterruptedWriteLeavesTheOldFile) {
  const TempFolder folder;
  const HostTensor tensor = counted(DType::kF32, {4});
  write_safetensors(folder / "w", {{"a", tensor}});
  const std::string before = content_of(folder / "w");
  message_of(ErrorCode::kUsage, [&] {
    write_safetensors(folder / "w", {{std::string("a\0b", 3), tensor}});
  });
  message_of(ErrorCode::kUsage, [&] { write_safetensors(folder / "w", {{"\xff", tensor}}); });
  message_of(ErrorCode::kUsage, [&] {
    write_safetensors(folder / "w", {{"__metadata__", tensor}});
  });
  EXPECT_EQ(content_of(folder / "w"), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(SafetensorsTest, PlacesThatCannotBeWrittenAreRefused) {
  const TempFolder folder;
  const auto refused = [](const std::filesystem::path& path) {
    return message_of(ErrorCode::kOutput, [&] { write_safetensors(path, {}); });
  };
  EXPECT_TRUE(contains(refused(folder.path()), "it is a directory"));
  EXPECT_TRUE(contains(refused("/dev/full"), "No space left on device"));
  EXPECT_TRUE(contains(refused(folder / "missing/w"), "No such file"));
  EXPECT_TRUE(contains(refused("/proc/w"), "cannot be written"));
}

TEST(SafetensorsTest, WritingThroughASymbolicLinkKeepsTheLink) {
  const TempFolder folder;
  folder.write("real", "");  // what is not ours would be kept
  std::filesystem::create_symlink("real", folder / "link");
  write_safetensors(folder / "link", {});
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(SafetensorsFile(folder / "real").entries().empty());
}

}  // namespace
}  // namespace tracestep
