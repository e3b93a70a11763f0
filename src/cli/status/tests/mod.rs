//! Plans of all kinds, from objects as the API server returns them to what
//! stands on a screen. `UPDATE_EXPECT=1` writes the files anew; read them.

mod absent;
mod configuration;
mod following;
mod rendering;
mod speed;
