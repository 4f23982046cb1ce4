// Tests messages of a connection whose other side is no rank, but says what it likes.
#include "transport/tcp/tcp_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/process_pool.hpp"
#include "tests/transport/connected.hpp"
#include "tests/transport/exchange.hpp"

namespace gradwire::test {
namespace {

namespace tcp = transport::tcp;

class Ended : public tcp::RequestSink {
 public:
  void finished(tcp::Request& request) override { request.status = tcp::Request::Status::finished; }
  void failed(tcp::Request& request, const std::string&) override { request.status = tcp::Request::Status::failed; }
};

struct Header {
  std::uint64_t bytes = 0;
  Tag tag = 9;
  std::uint32_t magic = 0x6d707467;
};

class TcpStream : public ::testing::Test {
 protected:
  TcpStream() {
    auto [mine, theirs] = connected();
    stream_ = std::make_unique<tcp::Stream>(std::move(mine), sink_);
    peer_ = std::move(theirs);
  }
  // Sends bytes to the stream, which takes them.
  void say(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};  // NOLINT(*-const-cast)
      const ssize_t count = tcp::send_some(peer_, std::span(&part, 1));
      bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
      stream_->take();
      ASSERT_TRUE(stream_->ended().empty()) << stream_->ended();
    }
  }
  static std::uint64_t in_use() { return memory::page_pool().statistics().in_use; }

  Ended sink_;
  std::unique_ptr<tcp::Stream> stream_;
  tcp::Socket peer_;
};

// Mutation tried: the memory is taken once the header has come.
TEST_F(TcpStream, ASizeThatIsOnlyClaimedTakesNoMemory) {
  const std::uint64_t before = in_use();
  const Header header{.bytes = 1ULL << 47};
  say(std::as_bytes(std::span(&header, 1)));
  say(Bytes(1'000'000));
  EXPECT_LE(in_use(), before + (8U << 20U));
}

TEST_F(TcpStream, ALargeMessageThatComesEarlyIsWhole) {
  constexpr std::size_t kBytes = (21U << 20U) + 77;
  const Bytes sent = pattern(0, 1, 7, kBytes);
  for (const std::size_t early : {kBytes, kBytes / 3, std::size_t{100}}) {
    const Header header{.bytes = kBytes};
    say(std::as_bytes(std::span(&header, 1)));
    say(std::span(sent).first(early));
    Bytes room(kBytes);
    Operation operation;
    operation.kind = Operation::Kind::receive;
    operation.tag = 9;
    operation.data = room.data();
    operation.bytes = room.size();
    tcp::Request request{.operation = &operation, .self = {}};
    stream_->receive(request);
    say(std::span(sent).subspan(early));
    EXPECT_EQ(request.status, tcp::Request::Status::finished);
    EXPECT_TRUE(room == sent);
  }
}

}  // namespace
}  // namespace gradwire::test
