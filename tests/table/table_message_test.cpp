// Tests messages: ids and rows arrive as they were sent, in few bytes, and damaged ones are errors.
#include "table/table_message.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "gradwire/error.hpp"
#include "table/id_codec.hpp"

namespace gradwire::table {
namespace {

using Ids = std::vector<std::uint64_t>;

Ids round_trip(const Ids& ids, std::uint64_t limit) {
  wire::Bytes bytes;
  encode_ids(ids, bytes);
  wire::ByteReader in(bytes, "test");
  Ids back = decode_ids(in, ids.size(), limit);
  in.expect_end();
  return back;
}

TEST(IdCodec, IsLossless) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  for (const Ids& ids :
       {Ids{}, Ids{0}, Ids{kMost - 1}, Ids{0, 1, 2, 3}, Ids{127, 128, 255, 256, 16383, 16384, 1U << 31U},
        Ids{0, kMost - 1}, Ids{kMost - 2, kMost - 1}}) {
    EXPECT_EQ(round_trip(ids, kMost), ids);
  }
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 100; ++trial) {
    std::set<std::uint64_t> set;
    const auto shift = static_cast<unsigned>(random() % 60);
    for (int i = 0; i < 200; ++i) {
      set.insert((random() >> shift) & ~(std::uint64_t{1} << 63U));
    }
    const Ids ids(set.begin(), set.end());
    EXPECT_EQ(round_trip(ids, kMost), ids) << "shift " << shift;
  }
}

TEST(IdCodec, TakesFewBytes) {
  Ids dense(1000);
  Ids sparse(1000);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    dense[i] = 5'000'000 + i;
    sparse[i] = i * 1000;
  }
  wire::Bytes bytes;
  encode_ids(dense, bytes);
  EXPECT_LE(bytes.size(), 1003U);
  bytes.clear();
  encode_ids(sparse, bytes);
  EXPECT_LE(bytes.size(), 2000U);
}

TEST(IdCodec, DamagedBytesAreErrors) {
  const Ids ids{3, 900, 5000};
  wire::Bytes bytes;
  encode_ids(ids, bytes);
  const auto decode = [](std::span<const std::byte> from, std::uint64_t count, std::uint64_t limit) {
    wire::ByteReader in(from, "test");
    Ids result = decode_ids(in, count, limit);
    in.expect_end();
    return result;
  };
  EXPECT_NO_THROW(static_cast<void>(decode(bytes, 3, 5001)));
  EXPECT_THROW(static_cast<void>(decode(bytes, 3, 5000)), Error);                              // ids beyond the table
  EXPECT_THROW(static_cast<void>(decode(bytes, 4, 5001)), Error);                              // too few ids
  EXPECT_THROW(static_cast<void>(decode(bytes, 2, 5001)), Error);                              // too many ids
  EXPECT_THROW(static_cast<void>(decode(bytes, ~0ULL, 5001)), Error);                          // no such memory
  EXPECT_THROW(static_cast<void>(decode(wire::Bytes(11, std::byte{0xFF}), 1, ~0ULL)), Error);  // never ends
  EXPECT_THROW(static_cast<void>(decode(wire::Bytes(10, std::byte{0xFF}), 1, ~0ULL)), Error);  // a number above 64 bits
  std::mt19937 random(11);
  for (int trial = 0; trial < 20000; ++trial) {  // any bytes give ascending ids below the limit, or an error
    wire::Bytes noise(random() % 24);
    for (std::byte& byte : noise) {
      byte = static_cast<std::byte>(random());
    }
    try {
      const std::uint64_t limit = random() % 100'000;
      const Ids result = decode(noise, random() % 24, limit);
      for (std::size_t i = 0; i < result.size(); ++i) {
        ASSERT_TRUE(result[i] < limit && (i == 0 || result[i - 1] < result[i]));
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::corrupt);
    }
  }
}

TEST(Runs, AreLossless) {
  for (const Ids& values : {Ids{}, Ids{5}, Ids{0, 0, 0}, Ids{1, 1, 0, 9, 9, 9, 1U << 20U}}) {
    wire::Bytes bytes;
    encode_runs(values, bytes);
    wire::ByteReader in(bytes, "test");
    EXPECT_EQ(decode_runs(in, values.size()), values);
    in.expect_end();
    if (!values.empty()) {
      wire::Bytes shorter(bytes.begin(), bytes.end() - 1);
      wire::ByteReader cut(shorter, "test");
      EXPECT_THROW(static_cast<void>(decode_runs(cut, values.size())), Error);
      wire::ByteReader fewer(bytes, "test");
      EXPECT_THROW((static_cast<void>(decode_runs(fewer, values.size() - 1)), fewer.expect_end()), Error);
    }
  }
}

TEST(TableMessage, RequestsArriveAsSent) {
  const PullRequest request{.number = 9, .clock = 4, .ids = {1, 5, 6, 70}, .known = {0, 12, 12, 1}};
  const PullRequest back = decode_pull(encode_pull(request), 71, 0);
  EXPECT_EQ(back.number, 9U);
  EXPECT_EQ(back.clock, 4U);
  EXPECT_EQ(back.ids, request.ids);
  EXPECT_EQ(back.known, request.known);
  EXPECT_THROW(static_cast<void>(decode_pull(encode_pull(request), 70, 0)), Error);
  TableMessage longer = encode_pull(request);
  longer.payload.push_back(std::byte{0});
  EXPECT_THROW(static_cast<void>(decode_pull(longer, 71, 0)), Error);
}

TEST(TableMessage, RequestsToRelaysAndTicksArriveAsSent) {
  const PullRequest request{.number = 9, .clock = 4, .ids = {1, 5}, .known = {0, 12}, .generation = 7};
  const TableMessage message = encode_pull(request);
  EXPECT_EQ(message.head.kind, MessageKind::relayed_pull);
  EXPECT_EQ(decode_pull(message, 71, 0).generation, 7U);
  EXPECT_EQ(decode_pull(message, 71, 0).known, request.known);
  RelayedRows::Note note{.answered = 12};
  EXPECT_EQ(decode_tick(encode_tick(note), 71, 0).answered, 12U);
  EXPECT_FALSE(decode_tick(encode_tick(note), 71, 0).announced);
  for (const Ids& ids : {Ids{}, Ids{3, 70}}) {
    note.announced = ids;
    TableMessage tick = encode_tick(note);
    seal(tick, true);
    EXPECT_NO_THROW(check_head(tick.head, {.rows = 71, .width = 1}, 0));
    EXPECT_EQ(decode_tick(tick, 71, 0).announced, ids);
  }
  EXPECT_THROW(static_cast<void>(decode_tick(encode_tick(note), 70, 0)), Error);
}

TEST(TableMessage, RowsArriveAsTheirCodecSays) {
  const Ids ids{2, 3, 9};
  std::vector<float> values(15);
  std::mt19937 random(3);
  std::normal_distribution<float> gauss;
  std::generate(values.begin(), values.end(), [&] { return gauss(random); });
  for (const auto& [name, bound, row_bytes] :
       {std::tuple{"exact", 0.0F, 20U}, std::tuple{"bf16", 1.0F / 256, 10U}, std::tuple{"int8", 1.0F / 127, 7U}}) {
    const RowCodec codec(name, 5);
    EXPECT_EQ(codec.row_bytes(), row_bytes);
    const TableMessage message = encode_rows(MessageKind::push, ids, values.data(), 5, codec);
    const Rows rows = decode_rows(message, 10, 5, codec, 1);
    EXPECT_EQ(rows.ids, ids);
    for (std::size_t row = 0; row < 3; ++row) {
      float largest = 0;
      for (std::size_t i = row * 5; i < row * 5 + 5; ++i) {
        largest = std::max(largest, std::abs(values[i]));
      }
      for (std::size_t i = row * 5; i < row * 5 + 5; ++i) {
        EXPECT_NEAR(rows.values[i], values[i], bound * largest) << name;
      }
    }
    TableMessage cut = message;
    cut.payload.pop_back();
    EXPECT_THROW(static_cast<void>(decode_rows(cut, 10, 5, codec, 1)), Error);
  }
  EXPECT_THROW(RowCodec("int4", 5), Error);
  EXPECT_THROW(RowCodec("topk(1%)+int8", 5), Error);
  EXPECT_THROW(RowCodec("int7", 5), Error);
}

TEST(TableMessage, ChecksumsAreChecked) {
  const MessageLimits limits{.rows = 10, .width = 4};
  TableMessage message = encode_pull({.number = 1, .clock = 0, .ids = {1, 2}, .known = {0, 0}});
  for (const bool checksum : {true, false}) {
    seal(message, checksum);
    EXPECT_NO_THROW(check_head(message.head, limits, 2));
    EXPECT_NO_THROW(check_payload(message, checksum, 2));
    // Any damage to a head is noticed before its size is believed, whatever the transport promises.
    for (std::size_t byte = 0; byte < sizeof(MessageHead); ++byte) {
      MessageHead damaged = message.head;
      std::as_writable_bytes(std::span(&damaged, 1))[byte] ^= std::byte{4};
      EXPECT_THROW(check_head(damaged, limits, 2), Error) << "byte " << byte;
    }
  }
  seal(message, true);
  for (std::size_t byte = 0; byte < message.payload.size(); ++byte) {
    TableMessage damaged = message;
    damaged.payload[byte] ^= std::byte{1};
    EXPECT_THROW(check_payload(damaged, true, 2), Error);
  }
}

TEST(TableMessage, HeadsThatPromiseMoreThanATableHasAreErrors) {
  const MessageLimits limits{.rows = 10, .width = 4};
  const auto text_of = [&](MessageKind kind, std::uint64_t count, std::uint64_t bytes) -> std::string {
    TableMessage message;
    message.head.kind = kind;
    message.head.count = count;
    message.payload.resize(bytes);
    seal(message, true);
    try {
      check_head(message.head, limits, 2);
    } catch (const Error& error) {
      return error.what();
    }
    return "fine";
  };
  EXPECT_EQ(text_of(MessageKind::push, 10, 10 * 26), "fine");
  EXPECT_NE(text_of(MessageKind::push, 10, 10 * 30 + 1), "fine");
  EXPECT_NE(text_of(MessageKind::push, 1, 100), "fine");
  EXPECT_NE(text_of(MessageKind::reply, 1U << 20U, 1000), "fine") << "there are fewer rows";
  EXPECT_NE(text_of(MessageKind::pull, 2, 61), "fine");
  EXPECT_NE(text_of(MessageKind::tick, 0, 1), "fine");
  EXPECT_NE(text_of(MessageKind::text, 0, (1U << 20U) + 1), "fine");
  EXPECT_EQ(text_of(MessageKind::text, 1, 10), "fine");
  EXPECT_NE(text_of(MessageKind::text, 2, 10), "fine") << "there is no such topic";
  EXPECT_NE(text_of(MessageKind::relayed_pull, 1, 35), "fine");
  EXPECT_NE(text_of(MessageKind::tick, 1, 11), "fine");
  EXPECT_NE(text_of(MessageKind::tick, 1 << 20, RelayedRows::kMost * 10 + 1), "fine");
  EXPECT_NE(text_of(static_cast<MessageKind>(8), 0, 0), "fine");
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(largest_payload({.kind = MessageKind::push, .count = kMost}, {.rows = kMost, .width = 4096}), kMost);
}

TEST(TableMessage, TheLargestMessagesAreWithinTheLimits) {
  // The ids are as far apart as possible, and none occurs twice.
  const std::uint64_t rows = std::numeric_limits<std::uint64_t>::max();
  const MessageLimits limits{.rows = rows, .width = 3};
  const Ids ids{1ULL << 63U, rows - 1};
  const std::vector<float> values(6, 1.5F);
  for (const char* codec : {"exact", "bf16", "int8"}) {
    TableMessage message = encode_rows(MessageKind::push, ids, values.data(), 3, RowCodec(codec, 3));
    seal(message, true);
    EXPECT_NO_THROW(check_head(message.head, limits, 0)) << codec;
  }
  TableMessage message = encode_pull({.number = 1, .clock = 0, .ids = ids, .known = {1, rows - 1}});
  seal(message, true);
  EXPECT_NO_THROW(check_head(message.head, limits, 0));
}

}  // namespace
}  // namespace gradwire::table
