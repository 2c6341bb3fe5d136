//! A session that needs no client library. It prepares a new server and shows that a server accepts logins.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// Time-out for one response.
const RESPONSE_MAX: Duration = Duration::from_secs(30);
/// `CLIENT_PROTOCOL_41`, `CLIENT_SECURE_CONNECTION` and `CLIENT_PLUGIN_AUTH`.
const CAPABILITIES: u32 = 0x200 | 0x8000 | 0x8_0000;
const PACKET_BYTES_MAX: u32 = 1 << 24;
const UTF8MB4: u8 = 45;
const PROTOCOL_VERSION: u8 = 10;
const QUIT: u8 = 1;
const QUERY: u8 = 3;

/// A connection to a server on 127.0.0.1, logged in.
#[derive(Debug)]
pub(super) struct Session(TcpStream);

impl Session {
    /// Logs in to an account without a password.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` means that the server runs and refuses the login.
    pub(super) fn login(port: u16, account: &str) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(RESPONSE_MAX))?;
        let mut session = Self(stream);
        let (number, greeting) = session.read()?;
        match greeting.first() {
            Some(&PROTOCOL_VERSION) => {}
            Some(0xff) => return Err(refusal(io::ErrorKind::PermissionDenied, &greeting)),
            _ => return Err(io::Error::other("this is no MariaDB server")),
        }
        let mut login = CAPABILITIES.to_le_bytes().to_vec();
        login.extend(PACKET_BYTES_MAX.to_le_bytes());
        login.push(UTF8MB4);
        login.extend([0; 23]);
        login.extend(account.as_bytes());
        // The end of the name, and a proof of zero bytes.
        login.extend([0, 0]);
        login.extend(b"mysql_native_password\0");
        session.write(number.wrapping_add(1), &login)?;
        session.expect_ok(io::ErrorKind::PermissionDenied)?;
        Ok(session)
    }

    /// Runs a statement that returns no rows.
    pub(super) fn execute(&mut self, statement: &str) -> io::Result<()> {
        self.write(0, &[&[QUERY], statement.as_bytes()].concat())?;
        self.expect_ok(io::ErrorKind::Other)
    }

    fn expect_ok(&mut self, refused: io::ErrorKind) -> io::Result<()> {
        loop {
            let (number, response) = self.read()?;
            match response.first() {
                Some(0) => return Ok(()),
                Some(0xff) => return Err(refusal(refused, &response)),
                // The server names another method. The proof of an empty password is empty there too.
                Some(0xfe) => self.write(number.wrapping_add(1), &[])?,
                _ => return Err(io::Error::other("the response is neither OK nor an error")),
            }
        }
    }

    /// Returns the number of a packet and its content.
    fn read(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head)?;
        let [a, b, c, number] = head;
        let mut content = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        self.0.read_exact(&mut content)?;
        Ok((number, content))
    }

    fn write(&mut self, number: u8, content: &[u8]) -> io::Result<()> {
        let [a, b, c, _] = (content.len() as u32).to_le_bytes();
        self.0.write_all(&[&[a, b, c, number], content].concat())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Otherwise the server logs a warning.
        let _ = self.write(0, &[QUIT]);
    }
}

/// Reads an error: `0xff`, two bytes of code, text.
fn refusal(kind: io::ErrorKind, response: &[u8]) -> io::Error {
    io::Error::new(kind, String::from_utf8_lossy(response.get(3..).unwrap_or_default()))
}
