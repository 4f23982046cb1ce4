// TLS 1.3 over memory, by pre-shared key and ephemeral keys: functions of the table in security/security_table.hpp.
#pragma once

#include <cstddef>

#include "security/security_table.hpp"

gradwire::security::TlsChannel* tls_connect(const unsigned char* psk, const unsigned char* identity,
                                            std::size_t bytes) noexcept;
gradwire::security::TlsChannel* tls_accept(bool (*find)(void*, const unsigned char*, std::size_t,
                                                        unsigned char*) noexcept,
                                           void* owner) noexcept;
void tls_free(gradwire::security::TlsChannel* channel) noexcept;
int tls_feed(gradwire::security::TlsChannel* channel, const unsigned char* data, std::size_t bytes) noexcept;
std::size_t tls_take(gradwire::security::TlsChannel* channel, unsigned char* out, std::size_t bytes) noexcept;
int tls_step(gradwire::security::TlsChannel* channel) noexcept;
std::size_t tls_read(gradwire::security::TlsChannel* channel, unsigned char* out, std::size_t bytes) noexcept;
int tls_write(gradwire::security::TlsChannel* channel, const unsigned char* data, std::size_t bytes) noexcept;
bool tls_unread(gradwire::security::TlsChannel* channel) noexcept;
const char* tls_failure(gradwire::security::TlsChannel* channel) noexcept;
