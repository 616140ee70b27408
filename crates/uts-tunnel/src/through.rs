//! Writers that are another writer and a little more.

/// Has wrappers write to what is their first field.
macro_rules! write_through {
    ($($name:ty),*) => {
        $(
            impl<S: tokio::io::AsyncWrite + Unpin> tokio::io::AsyncWrite for $name {
                fn poll_write(
                    mut self: std::pin::Pin<&mut Self>,
                    cx: &mut std::task::Context<'_>,
                    data: &[u8],
                ) -> std::task::Poll<std::io::Result<usize>> {
                    std::pin::Pin::new(&mut self.0).poll_write(cx, data)
                }

                fn poll_flush(
                    mut self: std::pin::Pin<&mut Self>,
                    cx: &mut std::task::Context<'_>,
                ) -> std::task::Poll<std::io::Result<()>> {
                    std::pin::Pin::new(&mut self.0).poll_flush(cx)
                }

                fn poll_shutdown(
                    mut self: std::pin::Pin<&mut Self>,
                    cx: &mut std::task::Context<'_>,
                ) -> std::task::Poll<std::io::Result<()>> {
                    std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
                }
            }
        )*
    };
}
